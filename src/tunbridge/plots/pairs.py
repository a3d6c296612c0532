"""Plots of two-dimensional densities: contours that contain given probability."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.declared import as_floats, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.plots.curves import BLUE, CYCLE, SHADES, check_masses, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MASSES = (0.5, 0.9)
_ANGLES = np.linspace(0.0, 2.0 * np.pi, 181)


@checked
def contours(
    log_density: Callable[[Any], Any],
    x: Any,
    y: Any,
    *,
    masses: Sequence[float] = MASSES,
    axes: "Axes | None" = None,
) -> "Axes":
    """Plot the highest-density regions of a two-dimensional density, computed on a grid.

    Parameters
    ----------
    log_density
        Log density of a vector (2,), normalised or not; a function that JAX can trace.
    x, y
        The grid, ascending and evenly spaced; it must contain nearly all of the mass.
    masses
        Probability of each region, between 0 and 1.
    """
    check_masses(masses)
    x, y = _grid(x, "x"), _grid(y, "y")
    points = jnp.asarray(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2), float)
    logs = np.asarray(jax.jit(jax.vmap(log_density))(points), np.float64)
    if logs.shape != (len(points),) or not np.isfinite(logs.max()):
        got = "NaN, or infinity" if logs.shape == (len(points),) else f"an array of shape {logs.shape[1:]}"
        raise InputError("a log density that is one number at each point of the grid", got, "Change log_density=.")
    axes = new_axes(axes)
    density = np.exp(logs - logs.max()).reshape(len(y), len(x))
    ordered = np.sort(density, axis=None)[::-1]
    cumulative = np.cumsum(ordered) / ordered.sum()
    levels = sorted({float(ordered[np.searchsorted(cumulative, mass)]) for mass in masses})
    colours = (SHADES[0], SHADES[1], SHADES[2])
    axes.contourf(x, y, density, [*levels, 1.001], colors=[colours[min(n, 2)] for n in range(len(levels))])
    return axes


@checked
def ellipses(
    mean: Any,
    covariance: Any,
    *,
    masses: Sequence[float] = MASSES,
    label: str | None = None,
    color: str | None = None,
    axes: "Axes | None" = None,
) -> "Axes":
    r"""Plot ellipses that contain given probabilities of a two-dimensional normal distribution, and its mean.

    Their radii are :math:`\sqrt{-2 \log(1 - \text{mass})}` standard deviations. Each further call on the same axes uses
    the next colour.

    Parameters
    ----------
    mean, covariance
        Mean (2,) and covariance (2, 2).
    masses
        Probability inside each ellipse, between 0 and 1.
    """
    check_masses(masses)
    _check_colour(color)
    centre, root = _root(mean, covariance)
    axes = new_axes(axes)
    color = CYCLE[len({line.get_color() for line in axes.lines}) % len(CYCLE)] if color is None else color
    circle = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)])
    for number, mass in enumerate(sorted(masses)):
        outline = centre[:, None] + np.sqrt(-2.0 * np.log1p(-mass)) * root @ circle
        axes.plot(*outline, color=color, lw=1.6, label=label if number == 0 else None)
    axes.plot(*centre, "o", color=color, ms=4)
    if label:
        axes.legend(frameon=False, fontsize="small")
    return axes


@checked
def path(means: Any, covariances: Any, *, mass: float = MASSES[-1], axes: "Axes | None" = None) -> "Axes":
    """Plot a sequence of two-dimensional normal distributions: a line through the means, and an ellipse per step.

    The last ellipse is drawn darker. Calls with growing prefixes of the sequence give the frames of an animation.

    Parameters
    ----------
    means, covariances
        Means (steps, 2) and covariances (steps, 2, 2), in order.
    mass
        Probability inside each ellipse.
    """
    check_masses((mass,))
    means, covariances = as_floats(means, "means"), as_floats(covariances, "covariances")
    if not len(means.shape) or not means.size or covariances.shape[:1] != means.shape[:1]:
        got = f"{means.shape} and {covariances.shape}"
        raise InputError("means (steps, 2) and covariances (steps, 2, 2)", got, "Choose two of the parameters.")
    for mean, covariance in zip(means, covariances, strict=True):
        _root(mean, covariance)
    axes = new_axes(axes)
    for mean, covariance in zip(means[:-1], covariances[:-1], strict=True):
        ellipses(mean, covariance, masses=(mass,), color=SHADES[2], axes=axes)
    axes.plot(*means.T, color=BLUE, lw=1.2)
    return ellipses(means[-1], covariances[-1], masses=(mass,), color=BLUE, axes=axes)


def _root(mean: Any, covariance: Any) -> tuple[np.ndarray, np.ndarray]:
    centre, matrix = as_floats(mean, "mean"), as_floats(covariance, "covariance")
    if centre.shape != (2,) or matrix.shape != (2, 2):
        raise InputError(
            "a mean (2,) and a covariance (2, 2)", f"{centre.shape} and {matrix.shape}", "Choose two of the parameters."
        )
    if not (np.isfinite(centre).all() and np.isfinite(matrix).all()):
        raise InputError("finite numbers in a mean and a covariance", "NaN or infinity", "Check the fit.")
    values, vectors = np.linalg.eigh(matrix)
    if values.min() < -1e-6 * values.max():
        raise InputError(
            "a covariance without negative eigenvalues", f"{values.min():.3g}", "Pass a positive semi-definite matrix."
        )
    return centre, vectors * np.sqrt(np.maximum(values, 0.0))[None]


def _grid(values: Any, name: str) -> np.ndarray:
    line = as_floats(values, name)
    if line.ndim != 1 or len(line) < 2 or not np.isfinite(line).all() or not (np.diff(line) > 0).all():
        raise InputError(f"{name} as at least two ascending numbers", shown(line), "Write np.linspace(-3, 3, 101).")
    return line


def _check_colour(color: str | None) -> None:
    from matplotlib.colors import is_color_like

    if color is not None and not is_color_like(color):
        raise InputError("a colour that matplotlib knows", repr(color), 'Write "red", or "#2f6690".')
