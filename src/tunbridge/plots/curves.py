"""Plots of a predictive along one input."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tunbridge.core.declared import as_floats, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.core.loaders import as_table
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


def check_masses(masses: Sequence[float]) -> None:
    """Raise InputError unless there is a mass, and all are between 0 and 1."""
    if not len(masses) or not all(0.0 < mass < 1.0 for mass in masses):
        raise InputError("masses between 0 and 1", f"{tuple(masses)}", "Write (0.5, 0.9).")


def check_output(output: int, num: int) -> None:
    """Raise InputError unless there is an output of this number."""
    if not 0 <= output < num:
        raise InputError(f"an output from 0 to {num - 1}", f"{output}", "Change output=.")


@checked
def band(
    predictive: Predictive,
    x: Any,
    *,
    data: Any = None,
    masses: Sequence[float] = (0.5, 0.9),
    axes: "Axes | None" = None,
) -> "Axes":
    """Plot the predictive mean and central intervals along x; `data`, such as `Data`, adds the training points."""
    check_masses(masses)
    x, order = _line(x, predictive)
    rows, mean = None if data is None else as_table(data), np.asarray(predictive.mean)[order, 0]
    ends = {mass: [np.asarray(end)[order, 0] for end in predictive.interval(mass)] for mass in masses}
    axes = new_axes(axes)
    for shade, mass in enumerate(sorted(ends, reverse=True)):
        lower, upper = ends[mass]
        colour = SHADES[min(shade, len(SHADES) - 1)]
        axes.fill_between(x, lower, upper, color=colour, lw=0, label=f"{mass:.0%} interval")
    axes.plot(x, mean, color=BLUE, lw=1.8, label="mean")
    if rows is not None:
        seen = (np.asarray(part).reshape(rows.num, -1)[:, 0] for part in (rows.x, rows.y))
        axes.plot(*seen, ".", color="black", ms=4, label="data")
    axes.set(xlabel="x", ylabel="y")
    axes.legend(frameon=False, fontsize="small")
    return axes


@checked
def split(predictive: Predictive, x: Any, *, axes: "Axes | None" = None) -> "Axes":
    """Plot aleatoric, epistemic and total uncertainty along x: standard deviations (numbers) or nats (classes)."""
    x, order = _line(x, predictive)
    axes = new_axes(axes)
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
    points, num = as_floats(x, "x"), len(predictive.aleatoric)
    if points.shape[:1] != (num,) or not points.size or not np.isfinite(points).all():
        raise InputError(f"x of the predictive's {num} points, finite", shown(points), "Pass its x.")
    line = points.reshape(num, -1)[:, 0]
    order = np.argsort(line)
    return line[order], order
