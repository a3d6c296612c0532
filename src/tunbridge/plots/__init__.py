"""Plots: every function takes matplotlib axes, or makes them, and returns them."""

from tunbridge.plots.chains import energy, ranks, trace
from tunbridge.plots.checks import check
from tunbridge.plots.curves import band, split
from tunbridge.plots.evidence import evidence
from tunbridge.plots.inputs import partial_function
from tunbridge.plots.pairs import contours, ellipses, path
from tunbridge.plots.priors import densities, influence, prior_functions
from tunbridge.plots.pruning import pruning, signal_to_noise
from tunbridge.plots.regret import regret
from tunbridge.plots.reliability import calibration, reliability
from tunbridge.plots.rows import observed, parts
from tunbridge.plots.selective import coverage_risk
from tunbridge.plots.uniformity import sbc
from tunbridge.plots.weights import averaging, weight_histograms

__all__ = [
    "averaging",
    "band",
    "calibration",
    "check",
    "contours",
    "coverage_risk",
    "densities",
    "ellipses",
    "energy",
    "evidence",
    "influence",
    "observed",
    "partial_function",
    "parts",
    "path",
    "prior_functions",
    "pruning",
    "ranks",
    "regret",
    "reliability",
    "sbc",
    "signal_to_noise",
    "split",
    "trace",
    "weight_histograms",
]
