"""Scales of all parameters under the prior."""

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.types import Key, Params
from tunbridge.model.model import Model

_DRAWS = 32
_NORMAL_MAD = 0.6745
"""The median absolute deviation of a standard normal variable."""


def prior_variances(key: Key, model: Model, x: Array | jax.ShapeDtypeStruct) -> Params:
    """Prior variance of all parameters, one value per array, by a robust estimate because tails may be heavy.

    It is the square of the median absolute deviation of prior draws, in units of a standard normal's.
    """

    def draw(key_draw: Key) -> Params:
        return model.sample_params(key_draw, x)

    draws = jax.vmap(draw)(jax.random.split(key, _DRAWS))

    def variance(leaf: Array) -> Array:
        scale = jnp.median(jnp.abs(leaf - jnp.median(leaf))) / _NORMAL_MAD
        return jnp.full(leaf.shape[1:], jnp.where(scale > 0, scale, 1.0) ** 2, leaf.dtype)

    return jax.tree.map(variance, draws)
