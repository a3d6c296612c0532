"""Plot of how y follows one input."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tunbridge.core.declared import checked
from tunbridge.plots.curves import BLUE, GREY, SHADES, check_masses, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class FollowsAnInput(Protocol):
    """How y follows one input, as returned by `tunbridge.bench.partial_function`."""

    name: str
    at: np.ndarray
    draws: np.ndarray
    x: np.ndarray
    residuals: np.ndarray


@checked
def partial_function(
    found: FollowsAnInput, *, masses: Sequence[float] = (0.5, 0.9), axes: "Axes | None" = None
) -> "Axes":
    """Plot the mean function of one input with bands of its draws, and the partial residuals of the rows."""
    check_masses(masses)
    axes = new_axes(axes)
    axes.plot(found.x, found.residuals, ".", color=GREY, ms=3, alpha=0.6, label="partial residuals")
    for mass, shade in zip(sorted(masses, reverse=True), SHADES, strict=False):
        low, high = np.quantile(found.draws, [0.5 - mass / 2, 0.5 + mass / 2], axis=0)
        axes.fill_between(found.at, low, high, color=shade, alpha=0.6, lw=0, label=f"{mass:.0%} of functions")
    axes.plot(found.at, found.draws.mean(axis=0), color=BLUE, label="mean")
    axes.set(xlabel=found.name, ylabel="y, but for the other inputs")
    axes.legend(frameon=False, fontsize="small")
    return axes
