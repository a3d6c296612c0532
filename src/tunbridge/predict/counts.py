"""Predictive distributions over counts: mixtures of a likelihood's distributions."""

from collections.abc import Callable
from functools import cached_property, partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from tunbridge.predict import marginals
from tunbridge.predict.marginals import components
from tunbridge.predict.quantities import MOST_COMPONENTS, QuantityPredictive, mixture_cdf, some_components

_TAIL = 1e-6
_CELLS = 256
"""The entropy is summed over this many single counts, then over as many cells of equal width."""
_CLIMB = 64


class CountPredictive(QuantityPredictive):
    r"""The mixture :math:`P(y) = \frac1S \sum_s P(y \mid f_s(x), \sigma_s)` over 0, 1, 2, ..., marginally per output.

    Mean and variance are exact sums, and the variance is split by the law of total variance, as for numbers. A
    quantile is the least count at which the distribution function reaches the level, so `interval` contains at least
    its nominal mass. The entropy is exact where all but 2e-6 of the mass lies within 256 counts.
    """

    discrete = True

    @property
    def _inverse(self) -> Callable:
        return _quantile

    @cached_property
    def _profile(self) -> tuple[Array, Array]:
        return self._outputs.answer(_mode_and_entropy, cost=MOST_COMPONENTS)


def _quantile(likelihood, outputs, noise, levels):
    """Invert the mixture's distribution function over whole numbers, (points, levels, outputs).

    The upper end of the bracket follows from Cantelli's inequality, P(Y >= m + t s) <= 1 / (1 + t^2): no component's
    quantile at q is above m + s sqrt(q / (1 - q)).
    """
    means, variances = components(lambda d: (d.mean, d.variance), likelihood, outputs, noise)
    reach = jnp.sqrt(levels / (1.0 - levels))[None, :, None, None]
    high = jnp.max(jnp.ceil(means[:, None] + reach * jnp.sqrt(variances)[:, None]), axis=0) + 1.0
    below = partial(mixture_cdf, likelihood, outputs, noise)
    _, quantiles = marginals.bisect(below, levels[:, None, None], jnp.full_like(high, -1.0), high, whole=True)
    return jnp.swapaxes(quantiles, 0, 1)


def _mode_and_entropy(likelihood, outputs, noise):
    ends = jnp.swapaxes(_quantile(likelihood, outputs, noise, jnp.array([_TAIL, 1.0 - _TAIL])), 0, 1)
    return _mode(likelihood, outputs, noise), _entropy(likelihood, outputs, noise, *ends)


def _log_mass(likelihood, outputs, noise, counts):
    """Log probability of the mixture at counts (leading, points, outputs)."""
    log_masses = components(lambda d: jax.vmap(d.log_prob)(counts), likelihood, outputs, noise)
    return logsumexp(log_masses, axis=0) - jnp.log(outputs.shape[0])


def _mode(likelihood, outputs, noise):
    """A local maximum of the mixture, climbed to in steps of one count from the best of 0 and the components' means."""
    starts = jnp.floor(components(lambda d: d.mean, likelihood, *some_components(outputs, noise)))
    starts = jnp.concatenate([starts, jnp.zeros_like(starts[:1])])
    best = jnp.argmax(_log_mass(likelihood, outputs, noise, starts), axis=0)
    start = jnp.take_along_axis(starts, best[None], axis=0)[0]

    def climb(_, count):
        neighbours = jnp.stack([count, jnp.maximum(count - 1.0, 0.0), count + 1.0])
        best = jnp.argmax(_log_mass(likelihood, outputs, noise, neighbours), axis=0)
        return jnp.take_along_axis(neighbours, best[None], axis=0)[0]

    return jax.lax.fori_loop(0, _CLIMB, climb, start)


def _entropy(likelihood, outputs, noise, low, high):
    """-sum P log P: over single counts first, then over cells of equal width, each evaluated at its middle."""
    width = jnp.maximum(jnp.ceil((high - low + 1.0 - _CELLS) / _CELLS), 1.0)
    total = jnp.zeros_like(low)

    def cell(i, total):
        single = i < _CELLS
        first = low + jnp.where(single, i, _CELLS + (i - _CELLS) * width)
        wide = jnp.where(single, 1.0, width)
        middle = first + jnp.floor(0.5 * (wide - 1.0))
        log_p = _log_mass(likelihood, outputs, noise, middle[None])[0]
        inside = jnp.where(jnp.exp(log_p) > 0, -jnp.exp(log_p) * log_p, 0.0)
        return total + jnp.where(first <= high, wide * inside, 0.0)

    return jax.lax.fori_loop(0, 2 * _CELLS, cell, total)
