"""Ranks that should be even."""

from typing import TYPE_CHECKING

import numpy as np

from tunbridge.diagnostics.uniformity import Calibration, band
from tunbridge.plots.curves import CYCLE, GREY, ORANGE, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def sbc(calibration: Calibration, *, axes: "Axes | None" = None) -> "Axes":
    """The distribution function of each quantity's ranks, less the diagonal.

    The band holds all lines at all levels, but for once in a hundred times, if the draws are right. A line that leaves
    it is drawn bold: above the band on the left and below on the right, draws are too narrow; above throughout, the
    truth is below the draws too often.
    """
    axes = new_axes(axes)
    num = len(next(iter(calibration.ranks.values())))
    z, low, high = band(num, calibration.level / len(calibration.ranks))
    axes.fill_between(z, low - z, high - z, color=GREY, alpha=0.2, lw=0, step="mid")
    doubtful = calibration.doubtful
    for number, (name, ranks) in enumerate(calibration.ranks.items()):
        share = np.searchsorted(np.sort(ranks), z, "right") / num
        colour = ORANGE if name in doubtful else CYCLE[number % len(CYCLE)]
        axes.plot(z, share - z, color=colour, lw=2.2 if name in doubtful else 1.0, label=name)
    axes.axhline(0.0, color=GREY, lw=0.8)
    axes.set(xlabel="rank of the truth among draws", ylabel="share below, less even", xlim=(0, 1))
    axes.legend(frameon=False, fontsize="small", ncols=2)
    return axes
