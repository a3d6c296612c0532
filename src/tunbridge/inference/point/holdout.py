"""Held-out rows for measuring noise, chosen by a hash of a row's own values, so that batches need no row numbers."""

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.types import Key

_LARGEST = 2**32 - 1


def salt(key: Key, batch: Data) -> Array:
    """Return a random odd integer for each column of x and y: the key of the hash that chooses held-out rows."""
    columns = sum(leaf.size // leaf.shape[0] for leaf in (batch.x, batch.y))
    return jax.random.bits(key, (columns,), jnp.uint32) | 1


def mark(multipliers: Array, batch: Data) -> Array:
    """Return a hash in [0, 2^32) of each row, (points,), which depends on nothing but the row and `multipliers`.

    Equal rows get equal marks, so a copy of a training row is never held out. `multipliers` comes from `salt`.
    """
    columns = [leaf.reshape(leaf.shape[0], -1).astype(jnp.float32) for leaf in (batch.x, batch.y)]
    bits = jax.lax.bitcast_convert_type(jnp.concatenate(columns, axis=1), jnp.uint32)
    mixed = jnp.sum(_scramble(bits ^ multipliers[None]) * multipliers[None], axis=1, dtype=jnp.uint32)
    return _scramble(mixed)


def threshold(marks: Array, weight: Array, share: float, whole: Array | bool) -> Array:
    """Return the largest mark at which a row is held out.

    If these rows are the `whole` data, the smallest threshold that holds out that share of the weight; else the one
    that does so on average.
    """
    order = jnp.argsort(marks)
    reached = jnp.cumsum(weight[order]) >= share * jnp.sum(weight)
    exact = marks[order][jnp.argmax(reached)]
    return jnp.where(whole, exact, jnp.uint32(int(share * _LARGEST)))


def _scramble(bits: Array) -> Array:
    """A bijection of 32-bit words that mixes all bits (Steele, Lea & Flood 2014, as tuned by Wellons)."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x21F0AAAD)
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x735A2D97)
    return bits ^ (bits >> 15)
