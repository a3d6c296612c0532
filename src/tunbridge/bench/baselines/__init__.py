"""Baselines for every method: ridge, Gaussian process and boosting, and one network without Bayesian inference."""

from tunbridge.bench.baselines.base import Fitted
from tunbridge.bench.baselines.boosting import Boosting
from tunbridge.bench.baselines.calibrated import CalibratedMAP
from tunbridge.bench.baselines.process import Process
from tunbridge.bench.baselines.ridge import Ridge
from tunbridge.inference.base import Method

BASELINES: dict[str, type[Method]] = {
    "ridge": Ridge,
    "gp": Process,
    "boosting": Boosting,
    "map calibrated": CalibratedMAP,
}
"""The name of each baseline, and its class."""

__all__ = ["BASELINES", "Boosting", "CalibratedMAP", "Fitted", "Process", "Ridge"]
