"""Whether a chain runs away: its running mean log density against the level that warm-up established.

A chain whose steps are too large need not become infinite: it may settle far out, where the density is very low. In
equilibrium the log density lies below its maximum by about half the number of unknowns, so that a chain is lost once
its running mean is below what it was at a meeting by `_PER_UNKNOWN` per unknown, and by much more than batches differ.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

_MEMORY = 0.95
"""Decay of the running mean and variance of the log density."""
_PER_UNKNOWN, _DEVIATIONS, _LEAST = 1.5, 10.0, 20.0
"""The deepest fall: per unknown, which is a temperature of 3; in standard deviations between batches; and at least."""


class Guard(NamedTuple):
    """Running mean and variance of a chain's log density, and the value below which the chain is lost."""

    mean: Array
    variance: Array
    floor: Array


def begin(like: Array) -> Guard:
    """Before the first step, without a floor."""
    return Guard(jnp.zeros((), like.dtype), jnp.zeros((), like.dtype), jnp.full((), -jnp.inf, like.dtype))


def follow(guard: Guard, log_density: Array, step: Array) -> Guard:
    """Running mean and variance with the log density of this step."""
    share = jnp.maximum(1.0 - _MEMORY, 1.0 / (step + 1.0)).astype(guard.mean.dtype)
    off = log_density - guard.mean
    return guard._replace(mean=guard.mean + share * off, variance=(1.0 - share) * (guard.variance + share * off**2))


def raised(guard: Guard, unknowns: int) -> Guard:
    """At a meeting: a floor below the running mean; it never falls."""
    depth = _PER_UNKNOWN * unknowns + _LEAST + _DEVIATIONS * jnp.sqrt(guard.variance)
    return guard._replace(floor=jnp.fmax(guard.floor, guard.mean - depth))


def lost(guard: Guard, log_density: Array, position: Array) -> Array:
    """Whether the chain is not finite, or runs away: its running mean is below the floor."""
    finite = jnp.isfinite(log_density) & jnp.all(jnp.isfinite(position))
    return ~finite | ~(guard.mean >= guard.floor)
