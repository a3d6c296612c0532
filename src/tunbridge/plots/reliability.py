"""Calibration plots: predicted probabilities against observed frequencies."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tunbridge import metrics
from tunbridge.core.declared import Count, checked
from tunbridge.metrics.targets import PredictiveOfClasses, PredictiveOfNumbers
from tunbridge.plots.curves import CYCLE, GREY, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@checked
def calibration(
    predictive: PredictiveOfNumbers, y: Any, *, label: str | None = None, axes: "Axes | None" = None
) -> "Axes":
    """Plot the share of values inside the central interval against its nominal probability (numbers, counts).

    For counts, PIT values are drawn uniformly between P(Y < y) and P(Y <= y), with a fixed key.
    """
    level = np.asarray(metrics.pit(predictive, y, jax.random.key(0))).reshape(-1)
    masses = np.linspace(0, 1, 101)
    observed = (2 * np.abs(level - 0.5)[None] <= masses[:, None]).mean(axis=1)
    return _against_diagonal(new_axes(axes), masses, observed, label, "mass of the interval", "share of values inside")


@checked
def reliability(
    predictive: PredictiveOfClasses, y: Any, *, bins: Count = 10, label: str | None = None, axes: "Axes | None" = None
) -> "Axes":
    """Plot accuracy against confidence, in bins of equal numbers of points (classes)."""
    table = metrics.reliability(predictive, y, bins, metrics.equal_mass)
    return _against_diagonal(new_axes(axes), table.confidence, table.accuracy, label, "confidence", "accuracy", "o-")


def _against_diagonal(axes, claimed, observed, label, xlabel, ylabel, style="-"):
    if not axes.lines:
        axes.plot([0, 1], [0, 1], "--", color=GREY, lw=1)
    colour = CYCLE[(len(axes.lines) - 1) % len(CYCLE)]
    axes.plot(claimed, observed, style, ms=4, lw=1.8, label=label, color=colour)
    axes.set(xlabel=xlabel, ylabel=ylabel, xlim=(0, 1), ylim=(0, 1), aspect="equal")
    if label:
        axes.legend(frameon=False, fontsize="small")
    return axes
