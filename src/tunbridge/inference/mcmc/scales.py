"""What is known before the first step: the scales of the prior, and the curvature where a chain starts."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.tree import ravel
from tunbridge.core.types import Key, Params
from tunbridge.model.model import Target

_DRAWS = 32
_TURNS = 12
_NORMAL_MAD = 0.6745
"""The median absolute deviation of a standard normal variable."""


def prior_variance(key: Key, target: Target, batch: Data) -> Array:
    """The square of each unknown's scale under the prior, one an array of weights: robust, as tails may be heavy."""

    def draw(key_draw: Key) -> Params:
        return target.model.sample_params(key_draw, batch.x)

    draws = jax.vmap(draw)(jax.random.split(key, _DRAWS))

    def one(leaf: Array) -> Array:
        scale = jnp.median(jnp.abs(leaf - jnp.median(leaf))) / _NORMAL_MAD
        return jnp.full(leaf.shape[1:], jnp.where(scale > 0, scale, 1.0) ** 2, leaf.dtype)

    return ravel(jax.tree.map(one, draws))


def curvature(key: Key, slope_of: Callable[[Array], Array], position: Array, variance: Array) -> Array:
    r"""The largest absolute eigenvalue of :math:`S H S`, H the Hessian of the log density, S the diagonal of scales.

    By the power method, with differences of gradients in place of products with H.
    """
    scale, slope, size = jnp.sqrt(variance), slope_of(position), 1e-3

    def turn(_, carry):
        direction, _ = carry
        moved = scale * (slope_of(position + size * scale * direction) - slope) / size
        length = jnp.linalg.norm(moved)
        return moved / jnp.maximum(length, jnp.finfo(length.dtype).tiny), length

    direction = jax.random.normal(key, position.shape, position.dtype)
    first = direction / jnp.linalg.norm(direction), jnp.ones((), position.dtype)
    _, found = jax.lax.fori_loop(0, _TURNS, turn, first)
    return jnp.where(jnp.isfinite(found) & (found > 0), found, 1.0)
