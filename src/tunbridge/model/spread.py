"""How far unknowns reach under the prior."""

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.types import Key, Params
from tunbridge.model.model import Model

_DRAWS = 32
_NORMAL_MAD = 0.6745
"""The median absolute deviation of a standard normal variable."""


def prior_variances(key: Key, model: Model, x: Array | jax.ShapeDtypeStruct) -> Params:
    """The square of each unknown's scale under the prior, one an array: robust, as tails may be heavy."""

    def draw(key_draw: Key) -> Params:
        return model.sample_params(key_draw, x)

    draws = jax.vmap(draw)(jax.random.split(key, _DRAWS))

    def one(leaf: Array) -> Array:
        scale = jnp.median(jnp.abs(leaf - jnp.median(leaf))) / _NORMAL_MAD
        return jnp.full(leaf.shape[1:], jnp.where(scale > 0, scale, 1.0) ** 2, leaf.dtype)

    return jax.tree.map(one, draws)
