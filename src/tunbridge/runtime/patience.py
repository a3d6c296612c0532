"""Early stopping when an objective no longer falls."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

_SMOOTHING = 0.95


class Patience(NamedTuple):
    """State of early stopping: the smoothed objective, its minimum, and the number of steps since the minimum."""

    smooth: Array
    least: Array
    since: Array

    @classmethod
    def fresh(cls) -> "Patience":
        """The state before the first step."""
        return cls(jnp.asarray(jnp.inf), jnp.asarray(jnp.inf), jnp.zeros((), jnp.int32))

    def after(self, loss: Array, begins: Array) -> "Patience":
        """The state after one more value of the objective; reset first if a stage `begins`."""
        smooth, least, since = (jnp.where(begins, new, old) for new, old in zip(Patience.fresh(), self, strict=True))
        smooth = jnp.where(jnp.isinf(smooth), loss, _SMOOTHING * smooth + (1 - _SMOOTHING) * loss)
        falls = (smooth < least - 1e-5 * jnp.maximum(1.0, jnp.abs(least))) | jnp.isinf(least)
        return Patience(smooth, jnp.where(falls, smooth, least), jnp.where(falls, 0, since + 1))
