"""Plots of priors: densities, influence on a weight, sampled functions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.data import check_x
from tunbridge.core.declared import Count, as_floats, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Prior
from tunbridge.model import priors as zoo
from tunbridge.model.model import Model
from tunbridge.plots.curves import BLUE, CYCLE, GREY, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Priors = Mapping[str, Prior]
_W = np.linspace(-8.0, 8.0, 161)


@checked
def densities(
    priors: Mapping[str, Prior], w: Any = _W, *, key: Key | None = None, axes: "Axes | None" = None
) -> "Axes":
    """Plot each prior's log density of one weight, which shows its mass near zero and its tails."""
    axes = _curves(priors, w, zoo.log_marginal, key, axes)
    axes.set(ylabel="log density", title="Log density of one weight")
    return axes


@checked
def influence(
    priors: Mapping[str, Prior], w: Any = _W, *, key: Key | None = None, axes: "Axes | None" = None
) -> "Axes":
    """Plot each prior's pull on a weight towards zero, -d log p / dw: unbounded, constant or redescending."""
    axes = _curves(priors, w, zoo.influence, key, axes)
    axes.axhline(0.0, color=GREY, lw=0.8)
    axes.set(ylabel="pull towards zero, -d log p / dw", title="Pull towards zero")
    return axes


@checked
def prior_functions(model: Model, x: Any, *, key: Key, num: Count = 12, axes: "Axes | None" = None) -> "Axes":
    """Plot functions drawn from a model's prior over one input: the first output of each network.

    x is (points,) or (points, 1). The likelihood is not used.
    """
    points = as_floats(x, "x")
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or points.shape[1] != 1 or not points.size:
        raise InputError("x of shape (points, 1)", f"shape {points.shape}", "Vary one input and fix the others.")
    inputs = jnp.asarray(check_x(points), float)

    def sampled_function(key_draw: Key) -> Any:
        return model.outputs(model.sample_params(key_draw, inputs), inputs)[:, 0]

    drawn = np.asarray(jax.jit(jax.vmap(sampled_function))(jax.random.split(key, num)))
    axes = new_axes(axes)
    for line in drawn:
        axes.plot(points[:, 0], line, color=BLUE, lw=0.9, alpha=0.7)
    axes.set(xlabel="x", ylabel="f(x)", title="Functions drawn from the prior", xlim=(points[0, 0], points[-1, 0]))
    return axes


def _curves(priors: Priors, w: Any, curve: Any, key: Key | None, axes: "Axes | None") -> "Axes":
    points = as_floats(w, "w")
    if not priors or points.ndim != 1 or len(points) < 2 or not np.isfinite(points).all():
        got = "none" if not priors else shown(points)
        raise InputError("a prior, and w as at least two finite numbers", got, "Leave w= out.")
    key = jax.random.key(0) if key is None else key
    curves = {name: np.asarray(curve(prior, points, key=key)) for name, prior in priors.items()}
    axes = new_axes(axes)
    for number, (name, line) in enumerate(curves.items()):
        style = "-" if number < len(CYCLE) else "--"
        axes.plot(points, line, style, color=CYCLE[number % len(CYCLE)], lw=1.4, label=name)
    axes.set(xlabel="weight", xlim=(points.min(), points.max()))
    axes.legend(frameon=False, fontsize="small")
    return axes
