"""The direction of each benchmark score: which values are better, and whether tasks can be averaged."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Figure(NamedTuple):
    """How a score is compared between methods."""

    better: str
    """Which value is better, in words."""
    loss: Callable[[float], float]
    """Maps the score to the loss that is compared: smaller is better."""
    pooled: bool
    """Whether differences mean the same on every task: true in nats or shares, false in the units of the data."""


_LOWER, _HIGHER = float, lambda value: -value

FIGURES = {
    "NLL": Figure("lower", _LOWER, True),
    "RMSE": Figure("lower", _LOWER, False),
    "CRPS": Figure("lower", _LOWER, False),
    "interval score": Figure("lower", _LOWER, False),
    "90 % coverage": Figure("nearer 0.9", lambda value: abs(value - 0.9), True),
    "accuracy": Figure("higher", _HIGHER, True),
    "Brier": Figure("lower", _LOWER, True),
    "ECE": Figure("lower", _LOWER, True),
    "AUROC": Figure("higher", _HIGHER, True),
    "shifted NLL": Figure("lower", _LOWER, True),
    "shifted accuracy": Figure("higher", _HIGHER, True),
    "shifted ECE": Figure("lower", _LOWER, True),
    "agreement": Figure("higher", _HIGHER, True),
    "total variation": Figure("lower", _LOWER, True),
    "sliced Wasserstein": Figure("lower", _LOWER, False),
    "mean error": Figure("lower", _LOWER, True),
    "sd ratio": Figure("nearer 1", lambda value: float(abs(np.log(value))) if value > 0 else np.inf, True),
}
"""Scores by name, in order of preference for ranking a suite; a score that is not listed is shown but not ranked."""
