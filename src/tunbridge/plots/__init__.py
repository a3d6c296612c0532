"""Pictures: axes in, axes out."""

from tunbridge.plots.curves import band, split
from tunbridge.plots.reliability import calibration, reliability

__all__ = ["band", "calibration", "reliability", "split"]
