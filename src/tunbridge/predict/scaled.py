"""A predictive of standardised targets, converted to their original units."""

from typing import Any

import numpy as np

from tunbridge.core.declared import Count, as_floats, checked
from tunbridge.core.types import Key, Predictive
from tunbridge.predict.base import AbstractPredictive, values_at
from tunbridge.predict.numbers import NumberPredictive
from tunbridge.predict.tasks import TasksPredictive


def in_units(predictive: Predictive, shift: Any, scale: Any) -> Predictive:
    """Return the predictive of shift + scale * y, (columns,) each; of several tasks only numbers are converted."""
    if not isinstance(predictive, TasksPredictive):
        return ScaledPredictive(predictive, shift, scale)
    tasks, start = {}, 0
    for (name, task), width in zip(predictive.tasks.items(), predictive.columns, strict=True):
        columns = slice(start, start := start + width)
        tasks[name] = (
            ScaledPredictive(task, shift[columns], scale[columns]) if isinstance(task, NumberPredictive) else task
        )
    return TasksPredictive(predictive.outputs, tasks, shift, scale)


class ScaledPredictive(AbstractPredictive):
    """The distribution of shift + scale * y, where `predictive` is that of y; shift and scale are (outputs,).

    Results are NumPy float64 whatever the precision of JAX, so that values far from zero keep their digits.
    """

    def __init__(self, predictive: Predictive, shift: Any, scale: Any):
        self._inner = predictive
        self._shift, self._scale = np.asarray(shift, np.float64), np.asarray(scale, np.float64)

    @property
    def mean(self) -> Any:
        """Mean, in the original units."""
        return self._out(self._inner.mean)

    @property
    def mode(self) -> Any:
        """Mode, in the original units."""
        return self._out(self._inner.mode)

    @property
    def std(self) -> Any:
        """Standard deviation, in the original units."""
        return np.sqrt(self.total)

    @property
    def functions(self) -> Any:
        """Mean under each network, in the original units."""
        return self._out(self._inner.functions)

    @property
    def variance(self) -> Any:
        """Variance, in squared original units."""
        return self.total

    @property
    def aleatoric(self) -> Any:
        """Aleatoric variance, in squared original units."""
        return np.asarray(self._inner.aleatoric) * self._scale[None] ** 2

    @property
    def epistemic(self) -> Any:
        """Epistemic variance, in squared original units."""
        return np.asarray(self._inner.epistemic) * self._scale[None] ** 2

    @property
    def entropy(self) -> Any:
        """Entropy in nats, for the original units."""
        return np.asarray(self._inner.entropy) + np.log(self._scale)[None]

    def quantile(self, q: Any) -> Any:
        """Quantiles, in the original units."""
        return self._out(self._inner.quantile(q))

    def cdf(self, y: Any) -> Any:
        """P(Y <= y), for y in the original units."""
        return self._inner.cdf(self._in(y))

    def log_prob(self, y: Any) -> Any:
        """Log p(y) in the original units, (points,): the log of the scale is subtracted."""
        return np.asarray(self._inner.log_prob(self._rows(y))) - np.sum(np.log(self._scale))

    def log_probs(self, y: Any) -> Any:
        """Log p(y) under each network, in the original units: the log of the scale is subtracted."""
        return np.asarray(self._inner.log_probs(self._rows(y))) - np.sum(np.log(self._scale))

    def cdfs(self, y: Any) -> Any:
        """P(Y <= y) under each network, for y in the original units."""
        return self._inner.cdfs(self._rows(y))

    @checked
    def replicates(self, key: Key) -> Any:
        """A draw from each network, in the original units."""
        return self._out(self._inner.replicates(key))

    @checked
    def sample(self, key: Key, num: Count) -> Any:
        """Draws, in the original units."""
        return self._out(self._inner.sample(key, num))

    def _out(self, values: Any) -> np.ndarray:
        lead = (None,) * (values.ndim - 1)
        return self._shift[lead] + self._scale[lead] * np.asarray(values, np.float64)

    def _rows(self, y: Any) -> np.ndarray:
        values = as_floats(y, "y")
        return self._in(values[:, None] if values.ndim == 1 else values)

    def _in(self, y: Any) -> np.ndarray:
        values = values_at(y, self._shift.shape)
        lead = (None,) * (values.ndim - 1)
        return (values - self._shift[lead]) / self._scale[lead]
