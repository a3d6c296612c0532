"""Scores, calibration, detection, selective prediction and distances of predictive distributions."""

from tunbridge.metrics.calibration import (
    Reliability,
    coverage,
    ece,
    equal_mass,
    equal_width,
    pit,
    reliability,
)
from tunbridge.metrics.detection import aupr, auroc, fpr95
from tunbridge.metrics.fidelity import agreement, sliced_wasserstein, total_variation, wasserstein
from tunbridge.metrics.scoring import accuracy, brier, crps, interval_score, log_score, rmse
from tunbridge.metrics.selective import CoverageRisk, coverage_risk

__all__ = [
    "CoverageRisk",
    "Reliability",
    "accuracy",
    "agreement",
    "aupr",
    "auroc",
    "brier",
    "coverage",
    "coverage_risk",
    "crps",
    "ece",
    "equal_mass",
    "equal_width",
    "fpr95",
    "interval_score",
    "log_score",
    "pit",
    "reliability",
    "rmse",
    "sliced_wasserstein",
    "total_variation",
    "wasserstein",
]
