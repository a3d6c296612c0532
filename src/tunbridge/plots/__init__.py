"""Pictures: axes in, axes out."""

from tunbridge.plots.chains import energy, ranks, trace
from tunbridge.plots.checks import check
from tunbridge.plots.curves import band, split
from tunbridge.plots.evidence import evidence
from tunbridge.plots.priors import densities, influence, prior_functions
from tunbridge.plots.reliability import calibration, reliability
from tunbridge.plots.rows import observed, parts
from tunbridge.plots.uniformity import sbc

__all__ = [
    "band",
    "calibration",
    "check",
    "densities",
    "energy",
    "evidence",
    "influence",
    "observed",
    "parts",
    "prior_functions",
    "ranks",
    "reliability",
    "sbc",
    "split",
    "trace",
]
