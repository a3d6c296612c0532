"""Pictures: axes in, axes out."""

from tunbridge.plots.curves import band, split
from tunbridge.plots.reliability import calibration, reliability
from tunbridge.plots.rows import observed, parts

__all__ = ["band", "calibration", "observed", "parts", "reliability", "split"]
