"""Plot of ranks that should be uniform."""

from typing import TYPE_CHECKING

import numpy as np

from tunbridge.core.declared import checked
from tunbridge.diagnostics.uniformity import Calibration, band
from tunbridge.plots.curves import CYCLE, GREY, ORANGE, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@checked
def sbc(calibration: Calibration, *, axes: "Axes | None" = None) -> "Axes":
    """Plot the distribution function of each quantity's ranks, minus the diagonal.

    If the draws are right, the band contains all lines at all levels with probability 0.99, unless `calibration` has
    another level. A line that leaves it is drawn bold. Above the band on the left and below it on the right, the draws
    are too narrow; above it throughout, the truth is below the draws too often.
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
    axes.set(xlabel="rank of the truth among draws", ylabel="distribution function - diagonal", xlim=(0, 1))
    axes.legend(frameon=False, fontsize="small", ncols=2)
    return axes
