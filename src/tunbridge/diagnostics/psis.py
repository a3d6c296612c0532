"""Leave-one-out cross-validation without refitting, by Pareto-smoothed importance sampling."""

import contextlib
import dataclasses
from typing import Any

import numpy as np
from scipy.special import logsumexp

from tunbridge.core.declared import Positive, as_floats, checked
from tunbridge.core.errors import InputError

LEAST = 50
"""The least number of draws for a fit of the tail of the importance ratios."""
HIGH = 0.7
"""The tail shape k-hat above which a point's estimate is unreliable."""


@dataclasses.dataclass(frozen=True)
class Loo:
    """Leave-one-out estimates of the expected log predictive density."""

    elpd_i: np.ndarray
    """Log p(y_i | all points but i), (points,)."""
    khat: np.ndarray
    """Tail shape of each point's importance ratios, (points,): above 0.7 the point's estimate is unreliable."""
    p_i: np.ndarray
    """Each point's contribution to the effective number of parameters, (points,)."""

    @property
    def elpd(self) -> float:
        """The expected log predictive density, summed over points."""
        return float(self.elpd_i.sum())

    @property
    def se(self) -> float:
        """Standard error of the sum, with the points taken as independent."""
        return float(np.sqrt(len(self.elpd_i) * self.elpd_i.var(ddof=1)))

    @property
    def high(self) -> float:
        """Share of points with a tail shape above 0.7."""
        return float(np.mean(self.khat > HIGH))


@checked
def loo(log_likelihood: Any, r_eff: Positive = 1.0) -> tuple[Loo, np.ndarray]:
    r"""PSIS-LOO from log p(y_i | draw) of shape (draws, points) :cite:p:`vehtari2017practical`.

    The draws are weighted by :math:`1 / p(y_i \mid \theta_s)`, which turns the posterior into that without point i. The
    largest ratios are replaced by quantiles of a fitted Pareto tail.

    Parameters
    ----------
    log_likelihood
        (draws, points), with chains concatenated.
    r_eff
        Relative efficiency: effective sample size per draw, which sets how many ratios form the tail.

    Returns
    -------
    The estimates, and the log weights of the draws for each point, (draws, points); the weights sum to one over draws.
    """
    values = as_floats(log_likelihood, "log_likelihood")
    if values.ndim != 2 or len(values) < LEAST or not values.size or not np.isfinite(values).all():
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
    """Log weights and tail shape: 0 if all ratios are equal, infinite if no tail can be fitted.

    Equal draws, such as those of a stuck chain, can make the fit impossible; arviz-stats (0.8) then returns weights
    with NaN.
    """
    from arviz_stats.base import array_stats

    if np.ptp(values) == 0.0:
        return np.full(len(values), -np.log(len(values))), 0.0
    with contextlib.suppress(ValueError, IndexError), np.errstate(divide="ignore", invalid="ignore"):
        log_weights, khat = array_stats.psislw(values, r_eff=r_eff)
        if np.isfinite(khat) and np.isfinite(log_weights).all():
            return log_weights, float(khat)
    return -values - logsumexp(-values), np.inf
