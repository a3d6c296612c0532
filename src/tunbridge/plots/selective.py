"""Plot of the loss on the rows that are answered."""

from typing import TYPE_CHECKING

from tunbridge.core.declared import checked
from tunbridge.metrics.selective import CoverageRisk
from tunbridge.plots.curves import CYCLE, GREY, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@checked
def coverage_risk(curve: CoverageRisk, *, label: str | None = None, axes: "Axes | None" = None) -> "Axes":
    """Plot mean loss against the share of rows answered; the first curve on the axes also draws the best ranking."""
    axes = new_axes(axes)
    if not axes.lines:
        axes.plot(curve.coverage, curve.best, "--", color=GREY, lw=1, label="best ranking")
    colour = CYCLE[(len(axes.lines) - 1) % len(CYCLE)]
    axes.plot(curve.coverage, curve.risk, color=colour, lw=1.8, label=label)
    axes.set(xlabel="share of rows answered", ylabel="mean loss of these", xlim=(0, 1))
    axes.set_ylim(bottom=0, auto=True)
    if label:
        axes.legend(frameon=False, fontsize="small")
    return axes
