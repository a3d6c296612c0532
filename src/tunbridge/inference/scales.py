"""What is known before the first step: the scales of the prior, and the curvature where a chain starts."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.tree import ravel
from tunbridge.core.types import Key
from tunbridge.model.model import Target
from tunbridge.model.spread import prior_variances

_TURNS = 12


def prior_variance(key: Key, target: Target, batch: Data) -> Array:
    """The square of each unknown's scale under the prior, in one vector."""
    return ravel(prior_variances(key, target.model, batch.x))


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
