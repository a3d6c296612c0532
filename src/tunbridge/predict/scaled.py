"""A predictive of standardised numbers, in the units they came in."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from tunbridge.core.types import Key, Predictive
from tunbridge.predict.base import AbstractPredictive


class ScaledPredictive(AbstractPredictive):
    """The distribution of shift + scale * y where `predictive` is that of y; shift and scale are (outputs,)."""

    def __init__(self, predictive: Predictive, shift: Array, scale: Array):
        self._inner, self._shift, self._scale = predictive, jnp.asarray(shift), jnp.asarray(scale)

    @property
    def mean(self) -> Array:
        """In the units of y."""
        return self._out(self._inner.mean)

    @property
    def mode(self) -> Array:
        """In the units of y."""
        return self._out(self._inner.mode)

    @property
    def variance(self) -> Array:
        """In squared units."""
        return self.total

    @property
    def aleatoric(self) -> Array:
        """In squared units."""
        return self._inner.aleatoric * self._scale[None] ** 2

    @property
    def epistemic(self) -> Array:
        """In squared units."""
        return self._inner.epistemic * self._scale[None] ** 2

    @property
    def entropy(self) -> Array:
        """In nats, of y in its units."""
        return self._inner.entropy + jnp.log(self._scale)[None]

    def quantile(self, q: Any) -> Array:
        """In the units of y."""
        return self._out(self._inner.quantile(q))

    def cdf(self, y: Any) -> Array:
        """P(Y <= y)."""
        return self._inner.cdf(self._in(y))

    def log_prob(self, y: Any) -> Array:
        """Log p(y), the log of the scale subtracted."""
        values = jnp.asarray(y)
        values = values[:, None] if values.ndim == 1 else values
        return self._inner.log_prob(self._in(values)) - jnp.sum(jnp.log(self._scale))

    def sample(self, key: Key, num: int) -> Array:
        """In the units of y."""
        return self._out(self._inner.sample(key, num))

    def _out(self, values: Array) -> Array:
        lead = (None,) * (values.ndim - 1)
        return self._shift[lead] + self._scale[lead] * values

    def _in(self, y: Any) -> Array:
        values = jnp.asarray(y)
        lead = (None,) * (values.ndim - 1)
        return (values - self._shift[lead]) / self._scale[lead]
