"""Scales for the first steps of a chain: prior variances, and the curvature at the starting point."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.tree import ravel
from tunbridge.core.types import Key
from tunbridge.model.model import Target
from tunbridge.model.spread import prior_variances

_ITERATIONS = 12


def prior_variance(key: Key, target: Target, batch: Data) -> Array:
    """Prior variance of each unknown, in one vector."""
    return ravel(prior_variances(key, target.model, batch.x))


def curvature(key: Key, gradient_of: Callable[[Array], Array], position: Array, variance: Array) -> Array:
    r"""The largest absolute eigenvalue of :math:`S H S`, H the Hessian of the log density, S the diagonal of scales.

    By power iteration, with differences of gradients in place of products with H; 1 if it fails.
    """
    scale, gradient, size = jnp.sqrt(variance), gradient_of(position), 1e-3

    def iterate(_, carry):
        direction, _ = carry
        product = scale * (gradient_of(position + size * scale * direction) - gradient) / size
        length = jnp.linalg.norm(product)
        return product / jnp.maximum(length, jnp.finfo(length.dtype).tiny), length

    direction = jax.random.normal(key, position.shape, position.dtype)
    first = direction / jnp.linalg.norm(direction), jnp.ones((), position.dtype)
    _, eigenvalue = jax.lax.fori_loop(0, _ITERATIONS, iterate, first)
    return jnp.where(jnp.isfinite(eigenvalue) & (eigenvalue > 0), eigenvalue, 1.0)
