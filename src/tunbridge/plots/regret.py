"""Plot of the regret of bandits."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from tunbridge.core.declared import as_floats, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.plots.curves import CYCLE, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MASS = 0.9


@checked
def regret(runs: Any, *, steps: Any = None, label: str | None = None, axes: "Axes | None" = None) -> "Axes":
    """Plot cumulative regret against steps: the mean of the runs, and its 90 % interval by Student's t.

    Parameters
    ----------
    runs
        Cumulative regret (runs, steps), such as ``[played.cumulative for played in runs]``, or of a single run.
    steps
        The number of steps at each value; None counts from 1.
    label
        Name of the agent.
    axes
        Where to plot; None makes new ones.
    """
    curves = np.atleast_2d(as_floats(runs, "runs"))
    if curves.ndim != 2 or curves.size == 0 or not np.isfinite(curves).all():
        raise InputError("cumulative regret (runs, steps)", shown(runs), "Give runs of one length.")
    at = np.arange(1, curves.shape[1] + 1) if steps is None else as_floats(steps, "steps")
    if at.shape != curves.shape[1:]:
        raise InputError(f"steps of shape {curves.shape[1:]}", f"{at.shape}", "Give one per value of regret.")
    axes = new_axes(axes)
    colour = CYCLE[len(axes.lines) % len(CYCLE)]
    mean = curves.mean(axis=0)
    if len(curves) > 1:
        width = interval(curves)
        axes.fill_between(at, mean - width, mean + width, color=colour, alpha=0.2, lw=0)
    axes.plot(at, mean, color=colour, lw=1.8, label=label)
    axes.set(xlabel="steps", ylabel="cumulative regret")
    if label:
        axes.legend(frameon=False, fontsize="small")
    return axes


def interval(curves: np.ndarray) -> np.ndarray:
    """Half the width of the 90 % interval of the mean over runs (runs, ...), by Student's t."""
    num = len(curves)
    return stats.t.ppf(0.5 + _MASS / 2, num - 1) * curves.std(axis=0, ddof=1) / np.sqrt(num)
