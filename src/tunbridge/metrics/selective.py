"""Selective prediction: the loss on the rows that are answered, when the least certain ones are not."""

import dataclasses
from typing import Any, Literal

import numpy as np

from tunbridge.core.declared import as_floats, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Predictive
from tunbridge.metrics.targets import column, labels, probs

By = Literal["total", "aleatoric", "epistemic"]


@dataclasses.dataclass(frozen=True)
class CoverageRisk:
    """The result of `coverage_risk`: mean loss by share of rows answered."""

    coverage: np.ndarray
    """Shares of rows answered, from 1 row to all of them, (rows,)."""
    risk: np.ndarray
    """Mean loss of the rows answered, (rows,)."""
    best: np.ndarray
    """The same if rows were ranked by their losses, (rows,)."""

    @property
    def area(self) -> float:
        """Area under the curve, the mean risk over all coverages."""
        return float(np.mean(self.risk))

    @property
    def excess(self) -> float:
        """The area minus that of the best ranking, 0 or more.

        See :cite:t:`geifman2019bias`.
        """
        return float(np.mean(self.risk) - np.mean(self.best))


@checked
def coverage_risk(predictive: Predictive, y: Any, *, by: By = "total", losses: Any = None) -> CoverageRisk:
    """Rank rows by their uncertainty, answer the most certain ones first, and average the losses of those answered.

    Parameters
    ----------
    predictive
        The distribution of y at the rows.
    y
        The targets.
    by
        Which uncertainty ranks the rows: total, aleatoric or epistemic, summed over outputs. Rows that tie are
        answered together, in their order.
    losses
        A loss per row (rows,); None is 1 for a wrong class and 0 for the right one, or the mean squared error.

    Examples
    --------
    >>> import jax, tunbridge as tb
    >>> data = tb.datasets.moons(jax.random.key(0))
    >>> model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Bernoulli())
    >>> posterior = tb.MAP(train=tb.Train(200)).fit(model, data, key=jax.random.key(1))
    >>> curve = coverage_risk(posterior.predict(data.x), data.y)
    >>> bool(curve.risk[100] < curve.risk[-1])
    True
    """
    uncertainty = np.asarray(getattr(predictive, by), np.float64)
    uncertainty = uncertainty.reshape(len(uncertainty), -1).sum(axis=1)
    lost = _losses(predictive, y) if losses is None else as_floats(losses, "losses")
    if lost.shape != uncertainty.shape or not np.isfinite(lost).all():
        raise InputError(f"finite losses of shape {uncertainty.shape}", f"shape {lost.shape}", "Give one per row.")
    order, num = np.argsort(uncertainty, kind="stable"), np.arange(1, len(lost) + 1)
    return CoverageRisk(num / len(lost), np.cumsum(lost[order]) / num, np.cumsum(np.sort(lost)) / num)


def _losses(predictive: Any, y: Any) -> np.ndarray:
    of_classes = probs(predictive)
    if of_classes is None:
        return np.mean((np.asarray(column(predictive, y)) - np.asarray(predictive.mean)) ** 2, axis=1)
    return (of_classes.argmax(axis=1) != np.asarray(labels(predictive, y))).astype(float)
