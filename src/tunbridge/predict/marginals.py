"""Mean, variance, distribution function and quantiles of a marginal distribution of numpyro's."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

_CLOSED = (dist.Normal, dist.Laplace)
"""Distributions with a closed-form inverse distribution function."""
_REACH = 60.0
"""Quantiles of other distributions are searched within centre +- sinh(60) scales."""


def components(question, likelihood, outputs, noise):
    """Apply `question` to each component's distribution of single outputs, batch (points, outputs)."""
    return jax.vmap(lambda o, z: question(likelihood.distribution(o, z).base_dist))(outputs, noise)


def mean(d: Distribution) -> Array:
    """The mean; for Student's t the centre, which is the mean where that exists."""
    return jnp.broadcast_to(d.loc, d.batch_shape) if isinstance(d, dist.StudentT) else d.mean


def variance(d: Distribution) -> Array:
    """The variance; infinite where it does not exist."""
    return jnp.where(jnp.isnan(d.variance), jnp.inf, d.variance) if isinstance(d, dist.StudentT) else d.variance


def cdf(d: Distribution, y: Array) -> Array:
    """P(Y <= y), for counts at any real y."""
    if not d.is_discrete:
        return d.cdf(y)
    return jnp.where(y < 0, 0.0, d.cdf(jnp.floor(jnp.maximum(y, 0.0))))


def icdf(d: Distribution, levels: Array) -> Array:
    """Quantiles of a continuous distribution, (levels, ...)."""
    if isinstance(d, _CLOSED):
        return jax.vmap(d.icdf)(levels)
    shape = (len(levels), *d.batch_shape)
    targets = levels.reshape(-1, *(1,) * len(d.batch_shape))

    def value(u: Array) -> Array:
        return d.loc[None] + d.scale[None] * jnp.sinh(u)

    low, high = jnp.full(shape, -_REACH), jnp.full(shape, _REACH)
    low, high = bisect(lambda u: jax.vmap(d.cdf)(value(u)), targets, low, high)
    return value(0.5 * (low + high))


def bisect(
    function: Callable[[Array], Array], wanted: Array, low: Array, high: Array, *, whole: bool = False
) -> tuple[Array, Array]:
    """Bracket the point where an increasing function reaches `wanted`, as narrowly as the precision allows.

    With `whole` the ends are whole numbers: the function is below `wanted` at the lower end, and not at the upper.
    """

    def halve(_, bracket):
        low, high = bracket
        middle = 0.5 * (low + high)
        middle = jnp.floor(middle) if whole else middle
        below = function(middle) < wanted
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    steps = 32 if low.dtype == jnp.float32 else 60
    return jax.lax.fori_loop(0, steps, halve, (low, high))
