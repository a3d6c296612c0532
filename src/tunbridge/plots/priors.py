"""What priors look like: densities, pulls, functions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Prior
from tunbridge.model import priors as zoo
from tunbridge.model.model import Model
from tunbridge.plots.curves import BLUE, CYCLE, GREY, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Priors = Mapping[str, Prior]
_W = np.linspace(-8.0, 8.0, 161)


def densities(
    priors: Mapping[str, Prior], w: Any = _W, *, key: Key | None = None, axes: "Axes | None" = None
) -> "Axes":
    """The density of one weight under each prior, on a logarithmic scale: mass near zero, and tails."""
    axes = _curves(priors, w, zoo.log_marginal, key, axes)
    axes.set(ylabel="log density", title="What priors say of one weight")
    return axes


def influence(
    priors: Mapping[str, Prior], w: Any = _W, *, key: Key | None = None, axes: "Axes | None" = None
) -> "Axes":
    """The pull of each prior towards zero: unbounded, constant, or falling back."""
    axes = _curves(priors, w, zoo.influence, key, axes)
    axes.axhline(0.0, color=GREY, lw=0.8)
    axes.set(ylabel="pull towards zero, -d log p / dw", title="How priors pull")
    return axes


def prior_functions(model: Model, x: Any, *, key: Key, num: int = 12, axes: "Axes | None" = None) -> "Axes":
    """Functions that a model's prior draws, over one input: the first output of each network.

    x is (points,) or (points, 1). The likelihood takes no part.
    """
    at = np.asarray(x, float)
    at = at[:, None] if at.ndim == 1 else at
    if at.ndim != 2 or at.shape[1] != 1:
        raise InputError("x of shape (points, 1)", f"shape {at.shape}", "Vary one input, and hold the others.")
    axes, inputs = new_axes(axes), jnp.asarray(at)

    def one(key_draw: Key) -> Any:
        return model.outputs(model.sample_params(key_draw, inputs), inputs)[:, 0]

    for line in np.asarray(jax.jit(jax.vmap(one))(jax.random.split(key, num))):
        axes.plot(at[:, 0], line, color=BLUE, lw=0.9, alpha=0.7)
    axes.set(xlabel="x", ylabel="f(x)", title="Functions drawn from the prior", xlim=(at[0, 0], at[-1, 0]))
    return axes


def _curves(priors: Priors, w: Any, of: Any, key: Key | None, axes: "Axes | None") -> "Axes":
    axes = new_axes(axes)
    key = jax.random.key(0) if key is None else key
    for number, (name, prior) in enumerate(priors.items()):
        style = "-" if number < len(CYCLE) else "--"
        axes.plot(w, np.asarray(of(prior, w, key=key)), style, color=CYCLE[number % len(CYCLE)], lw=1.4, label=name)
    axes.set(xlabel="weight", xlim=(np.min(w), np.max(w)))
    axes.legend(frameon=False, fontsize="small")
    return axes
