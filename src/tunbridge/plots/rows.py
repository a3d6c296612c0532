"""Plots of a predictive row by row: predicted against observed y, and the two parts of the uncertainty."""

from typing import TYPE_CHECKING, Any

import numpy as np

from tunbridge.core.blocks import evenly
from tunbridge.core.declared import checked
from tunbridge.core.types import Predictive
from tunbridge.metrics.targets import PredictiveOfNumbers, column
from tunbridge.plots.curves import BLUE, GREY, ORANGE, SHADES, check_output, new_axes, refuse_tasks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 500
"""The most rows shown in a plot, evenly spaced among all."""


@checked
def observed(
    predictive: PredictiveOfNumbers, y: Any, *, output: int = 0, mass: float = 0.9, axes: "Axes | None" = None
) -> "Axes":
    """Plot the mean and central interval against observed y, with intervals that miss it highlighted (numbers)."""
    num, outputs = np.asarray(predictive.mean).shape
    check_output(output, outputs)
    rows, values = evenly(num, _MOST), np.asarray(column(predictive, y))
    lower, upper = (np.asarray(end)[rows, output] for end in predictive.interval(mass))
    mean, seen = np.asarray(predictive.mean)[rows, output], values[rows, output]
    axes = new_axes(axes)
    inside = (lower <= seen) & (seen <= upper)
    for chosen, colour, label in ((inside, SHADES[2], f"{mass:.0%} interval"), (~inside, ORANGE, "misses")):
        axes.vlines(seen[chosen], lower[chosen], upper[chosen], color=colour, lw=1, alpha=0.8, label=label)
    axes.plot(seen, mean, ".", color=BLUE, ms=4, label="mean")
    ends = [min(seen.min(), mean.min()), max(seen.max(), mean.max())]
    axes.plot(ends, ends, "--", color=GREY, lw=1)
    axes.set(xlabel="observed", ylabel="predicted")
    axes.legend(frameon=False, fontsize="small")
    return axes


@checked
def parts(predictive: Predictive, *, output: int = 0, axes: "Axes | None" = None) -> "Axes":
    """Plot aleatoric and epistemic uncertainty of the rows, least certain first: standard deviations or nats."""
    refuse_tasks(predictive)
    both = [np.asarray(part) for part in (predictive.aleatoric, predictive.epistemic)]
    numbers = both[0].ndim == 2
    check_output(output, both[0].shape[1] if numbers else 1)
    axes = new_axes(axes)
    aleatoric, epistemic = (np.sqrt(part[:, output]) if numbers else part for part in both)
    order = np.argsort(-(both[0] + both[1])[:, output] if numbers else -(both[0] + both[1]))
    order = order[evenly(len(order), _MOST)]
    axes.plot(np.linspace(0, 100, len(order)), aleatoric[order], color=ORANGE, lw=1.2, label="aleatoric")
    axes.plot(np.linspace(0, 100, len(order)), epistemic[order], color=BLUE, lw=1.2, label="epistemic")
    axes.set(xlabel="rows, least certain first (%)", ylabel="standard deviation" if numbers else "nats")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small")
    return axes
