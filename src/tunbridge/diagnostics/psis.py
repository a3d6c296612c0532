"""Leaving one point out without fitting again: Pareto-smoothed importance sampling."""

import contextlib
import dataclasses
from typing import Any

import numpy as np
from scipy.special import logsumexp

from tunbridge.core.errors import InputError

LEAST = 50
"""How many draws the tail of importance ratios needs at the very least."""
HIGH = 0.7
"""The shape of the tail above which a point's estimate is not to be believed."""


@dataclasses.dataclass(frozen=True)
class Loo:
    """The expected log predictive density of points that were left out, one by one."""

    elpd_i: np.ndarray
    """Log p(y_i | all but i), (points,)."""
    khat: np.ndarray
    """The shape of the tail of each point's importance ratios, (points,): above 0.7 its estimate is unreliable."""
    p_i: np.ndarray
    """Each point's share of the effective number of parameters, (points,)."""

    @property
    def elpd(self) -> float:
        """The sum over points."""
        return float(self.elpd_i.sum())

    @property
    def se(self) -> float:
        """The standard error of the sum, as of independent points."""
        return float(np.sqrt(len(self.elpd_i) * self.elpd_i.var(ddof=1)))

    @property
    def high(self) -> float:
        """The share of points with a shape above 0.7."""
        return float(np.mean(self.khat > HIGH))


def loo(log_likelihood: Any, r_eff: float = 1.0) -> tuple[Loo, np.ndarray]:
    r"""PSIS-LOO from log p(y_i | draw) of shape (draws, points) :cite:p:`vehtari2017practical`.

    The draws are weighed by :math:`1 / p(y_i \mid \theta_s)`, which makes of a posterior that saw point i one that did
    not; the largest ratios are replaced by quantiles of a fitted Pareto tail.

    Parameters
    ----------
    log_likelihood
        (draws, points); chains one after another.
    r_eff
        Effective draws a draw, which sets how many ratios make up the tail.

    Returns
    -------
    The estimates, and the log weights of the draws for each point, (draws, points), which sum to one over draws.
    """
    values = np.asarray(log_likelihood, np.float64)
    if values.ndim != 2 or len(values) < LEAST or not np.isfinite(values).all():
        finite = bool(np.isfinite(values).all())
        raise InputError(
            f"finite log likelihoods (draws, points) of at least {LEAST} draws",
            f"shape {values.shape}" + ("" if finite else " with NaN or infinity"),
            "Draw more, or drop draws under which the data is impossible.",
        )
    smoothed = [_smoothed(values[:, point], r_eff) for point in range(values.shape[1])]
    weights = np.stack([log_weights for log_weights, _ in smoothed], axis=1)
    elpd_i = logsumexp(weights + values, axis=0)
    lppd_i = logsumexp(values, axis=0) - np.log(len(values))
    return Loo(elpd_i, np.array([khat for _, khat in smoothed]), lppd_i - elpd_i), weights


def _smoothed(values: np.ndarray, r_eff: float) -> tuple[np.ndarray, float]:
    """Log weights and the tail's shape: 0 where all ratios are equal, infinite where the tail has none.

    Draws that are equal, as of a chain that stood still, can leave it none; arviz-stats (0.8) then answers with NaN
    among the weights.
    """
    from arviz_stats.base import array_stats

    if np.ptp(values) == 0.0:
        return np.full(len(values), -np.log(len(values))), 0.0
    with contextlib.suppress(ValueError), np.errstate(divide="ignore", invalid="ignore"):
        log_weights, khat = array_stats.psislw(values, r_eff=r_eff)
        if np.isfinite(khat) and np.isfinite(log_weights).all():
            return log_weights, float(khat)
    return -values - logsumexp(-values), np.inf
