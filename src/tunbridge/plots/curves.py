"""Plots of a predictive along one input."""

from typing import TYPE_CHECKING, Any

import numpy as np

from tunbridge.core.errors import InputError
from tunbridge.core.types import Predictive
from tunbridge.predict.tasks import TasksPredictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREY, GREEN, PURPLE, GOLD = "#2f6690", "#d1603d", "#6b7280", "#3f7d4e", "#7a5195", "#c9962b"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, GOLD, GREY)
SHADES = ("#d3e2ec", "#a3c3d9", "#74a5c4")


def new_axes(axes: "Axes | None") -> "Axes":
    """Return the given axes, or new ones."""
    if axes is not None:
        return axes
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1]


def refuse_tasks(predictive: Predictive) -> None:
    """Raise InputError for a predictive of several tasks, each of which is plotted by itself."""
    if isinstance(predictive, TasksPredictive):
        raise InputError("the predictive of one task", "one of several", "Pass predictive.tasks[name].")


def band(
    predictive: Predictive,
    x: Any,
    *,
    data: Any = None,
    masses: tuple[float, ...] = (0.5, 0.9),
    axes: "Axes | None" = None,
) -> "Axes":
    """Plot the predictive mean and central intervals along x; `data` adds the training points."""
    axes = new_axes(axes)
    x, order = _line(x, predictive)
    for shade, mass in enumerate(sorted(masses, reverse=True)):
        lower, upper = (np.asarray(end)[order, 0] for end in predictive.interval(mass))
        colour = SHADES[min(shade, len(SHADES) - 1)]
        axes.fill_between(x, lower, upper, color=colour, lw=0, label=f"{mass:.0%} interval")
    axes.plot(x, np.asarray(predictive.mean)[order, 0], color=BLUE, lw=1.8, label="mean")
    if data is not None:
        axes.plot(np.asarray(data.x)[:, 0], np.asarray(data.y)[:, 0], ".", color="black", ms=4, label="data")
    axes.set(xlabel="x", ylabel="y")
    axes.legend(frameon=False, fontsize="small")
    return axes


def split(predictive: Predictive, x: Any, *, axes: "Axes | None" = None) -> "Axes":
    """Plot aleatoric, epistemic and total uncertainty along x: standard deviations (numbers) or nats (classes)."""
    axes = new_axes(axes)
    x, order = _line(x, predictive)
    parts = [np.asarray(part) for part in (predictive.total, predictive.aleatoric, predictive.epistemic)]
    numbers = parts[0].ndim == 2
    values = [np.sqrt(part[order, 0]) if numbers else part[order] for part in parts]
    axes.fill_between(x, values[0], color=GREY, alpha=0.15, lw=0, label="total")
    axes.plot(x, values[1], color=ORANGE, lw=1.8, label="aleatoric")
    axes.plot(x, values[2], color=BLUE, lw=1.8, label="epistemic")
    axes.set(xlabel="x", ylabel="standard deviation of y" if numbers else "uncertainty in nats")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small")
    return axes


def _line(x: Any, predictive: Predictive) -> tuple[np.ndarray, np.ndarray]:
    refuse_tasks(predictive)
    line = np.asarray(x).reshape(len(x), -1)[:, 0]
    if len(line) != len(predictive.aleatoric):
        raise InputError(f"x of the predictive's {len(predictive.aleatoric)} points", f"{len(line)}", "Pass its x.")
    order = np.argsort(line)
    return line[order], order
