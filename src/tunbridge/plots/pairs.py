"""Plots of two-dimensional densities: contours that contain given probability."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.errors import InputError
from tunbridge.plots.curves import BLUE, CYCLE, SHADES, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MASSES = (0.5, 0.9)
_ANGLES = np.linspace(0.0, 2.0 * np.pi, 181)


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
    _check_masses(masses)
    axes, x, y = new_axes(axes), np.asarray(x, float), np.asarray(y, float)
    points = jnp.asarray(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))
    logs = np.asarray(jax.jit(jax.vmap(log_density))(points), np.float64)
    density = np.exp(logs - logs.max()).reshape(len(y), len(x))
    ordered = np.sort(density, axis=None)[::-1]
    cumulative = np.cumsum(ordered) / ordered.sum()
    levels = sorted({float(ordered[np.searchsorted(cumulative, mass)]) for mass in masses})
    colours = (SHADES[0], SHADES[1], SHADES[2])
    axes.contourf(x, y, density, [*levels, 1.001], colors=[colours[min(n, 2)] for n in range(len(levels))])
    return axes


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
    _check_masses(masses)
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
    axes = new_axes(axes)
    means, covariances = np.asarray(means, float), np.asarray(covariances, float)
    for mean, covariance in zip(means[:-1], covariances[:-1], strict=True):
        ellipses(mean, covariance, masses=(mass,), color=SHADES[2], axes=axes)
    axes.plot(*means.T, color=BLUE, lw=1.2)
    return ellipses(means[-1], covariances[-1], masses=(mass,), color=BLUE, axes=axes)


def _root(mean: Any, covariance: Any) -> tuple[np.ndarray, np.ndarray]:
    centre, matrix = np.asarray(mean, float), np.asarray(covariance, float)
    if centre.shape != (2,) or matrix.shape != (2, 2):
        raise InputError(
            "a mean (2,) and a covariance (2, 2)", f"{centre.shape} and {matrix.shape}", "Choose two of the parameters."
        )
    values, vectors = np.linalg.eigh(matrix)
    if values.min() < -1e-6 * values.max():
        raise InputError(
            "a covariance without negative eigenvalues", f"{values.min():.3g}", "Pass a positive semi-definite matrix."
        )
    return centre, vectors * np.sqrt(np.maximum(values, 0.0))[None]


def _check_masses(masses: Sequence[float]) -> None:
    if not all(0.0 < mass < 1.0 for mass in masses):
        raise InputError("masses between 0 and 1", f"{tuple(masses)}", "Write (0.5, 0.9).")
