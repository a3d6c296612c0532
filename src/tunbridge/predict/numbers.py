"""Predictive distributions over numbers: mixtures of a likelihood's distributions."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from numpyro.distributions import Distribution
from scipy.special import ndtr

from tunbridge.core.errors import InputError
from tunbridge.predict.mixture import MixturePredictive

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(11)
"""Standard normal scores and their weights, for integrals over a component."""
_MOST_COMPONENTS = 32
"""Around how many components, evenly spaced among all, the mode is sought and the entropy integrated."""


class NumberPredictive(MixturePredictive):
    r"""The mixture :math:`p(y) = \frac1S \sum_s p(y \mid f_s(x), \sigma_s)`, marginal an output.

    Mean and variance are exact sums; quantiles invert the mixture's distribution function. The split is the law of
    total variance: aleatoric is the mean variance of the components, epistemic the variance of their means.
    """

    @cached_property
    def _moments(self) -> tuple[Array, Array, Array]:
        return self._outputs.answer(_moments)

    @property
    def mean(self) -> Array:
        """Expected y, (points, outputs)."""
        return self._moments[0]

    @property
    def aleatoric(self) -> Array:
        """Mean variance of the components, (points, outputs)."""
        return self._moments[1]

    @property
    def epistemic(self) -> Array:
        """Variance of the components' means, (points, outputs)."""
        return self._moments[2]

    @cached_property
    def functions(self) -> Array:
        """Expected y of each network, (networks, points, outputs)."""
        return jnp.swapaxes(self._outputs.answer(_means), 0, 1)

    @property
    def variance(self) -> Array:
        """Aleatoric + epistemic, (points, outputs)."""
        return self.total

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.mean.shape

    @cached_property
    def _profile(self) -> tuple[Array, Array]:
        cost = min(self._outputs.num_components, _MOST_COMPONENTS) * len(_NODES)
        return self._outputs.answer(_mode_and_entropy, cost=cost)

    @property
    def mode(self) -> Array:
        """The value of highest marginal density near some component's middle, (points, outputs)."""
        return self._profile[0]

    @property
    def entropy(self) -> Array:
        """Differential entropy of each output, in nats, (points, outputs)."""
        return self._profile[1]

    def quantile(self, q: Any) -> Array:
        """Quantiles of the mixture, (points, outputs); for several levels (levels, points, outputs)."""
        levels = np.asarray(q, jax.dtypes.canonicalize_dtype(float))
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise InputError(f"levels between 0 and 1 as {levels.dtype}", f"{q}", "Write 0.05, or [0.05, 0.95].")
        common = jnp.atleast_1d(jnp.asarray(levels))
        found = self._outputs.answer(_quantile, common=(common,), cost=common.size)
        found = jnp.swapaxes(found, 0, 1)
        return found[0] if levels.ndim == 0 else found

    def cdf(self, y: Any) -> Array:
        """P(Y <= y) an output, (..., points, outputs)."""
        values = jnp.asarray(y)
        num, width = self.mean.shape
        if values.shape[-2:] != (num, width):
            raise InputError(f"y of shape (..., {num}, {width})", f"shape {values.shape}", "Reshape y.")
        leading = values.shape[:-2]
        rows = jnp.moveaxis(values.reshape(-1, num, width), 1, 0)
        found = self._outputs.answer(_cdf, rows, cost=rows.shape[1])
        return jnp.moveaxis(found, 0, 1).reshape(*leading, num, width)

    def cdfs(self, y: Any) -> Array:
        """P(Y <= y) under each network, (networks, points, outputs)."""
        return jnp.swapaxes(self._outputs.answer(_cdfs, self._checked(y)), 0, 1)


def _marginals(distribution: Distribution) -> Distribution:
    """The distribution of each output by itself: batch (points, outputs)."""
    return distribution.base_dist


def _components(question, likelihood, outputs, noise):
    """`question` of each component's marginals, (components, ...)."""
    return jax.vmap(lambda o, z: question(_marginals(likelihood.distribution(o, z))))(outputs, noise)


def _moments(likelihood, outputs, noise):
    means, variances = _components(lambda d: (d.mean, d.variance), likelihood, outputs, noise)
    mean = jnp.mean(means, axis=0)
    return mean, jnp.mean(variances, axis=0), jnp.mean((means - mean[None]) ** 2, axis=0)


def _means(likelihood, outputs, noise):
    return jnp.swapaxes(_components(lambda d: d.mean, likelihood, outputs, noise), 0, 1)


def _mode_and_entropy(likelihood, outputs, noise):
    """Both from the mixture's log density at nodes around each component: h = -mean_s E_s[log p]."""
    num = outputs.shape[0]
    chosen = np.unique(np.linspace(0, num - 1, min(num, _MOST_COMPONENTS)).round().astype(int))
    some = outputs[chosen], jax.tree.map(lambda leaf: leaf[chosen], noise)
    values = _components(lambda d: jax.vmap(d.icdf)(jnp.asarray(ndtr(_NODES))), likelihood, *some)
    nodes = values.reshape(-1, *values.shape[2:])  # components and scores together
    log_p = _components(lambda d: jax.vmap(d.log_prob)(nodes), likelihood, outputs, noise)
    log_p = logsumexp(log_p, axis=0) - jnp.log(num)
    mode = jnp.take_along_axis(nodes, jnp.argmax(log_p, axis=0)[None], axis=0)[0]
    weights = jnp.tile(jnp.asarray(_WEIGHTS / _WEIGHTS.sum() / len(chosen)), len(chosen))
    return mode, -jnp.tensordot(weights, log_p, axes=1)


def _cdf(likelihood, outputs, noise, rows):
    values = jnp.swapaxes(rows, 0, 1)
    return jnp.swapaxes(
        jnp.mean(_components(lambda d: jax.vmap(d.cdf)(values), likelihood, outputs, noise), axis=0), 0, 1
    )


def _cdfs(likelihood, outputs, noise, y):
    return jnp.swapaxes(_components(lambda d: d.cdf(y), likelihood, outputs, noise), 0, 1)


def _quantile(likelihood, outputs, noise, levels):
    """Invert the mixture's distribution function by bisection, (points, levels, outputs).

    The quantile of a mixture lies between the least and the largest of its components' quantiles.
    """
    ends = _components(lambda d: jax.vmap(d.icdf)(levels), likelihood, outputs, noise)
    low, high = jnp.min(ends, axis=0), jnp.max(ends, axis=0)

    def halve(_, bracket):
        low, high = bracket
        middle = 0.5 * (low + high)
        below = (
            jnp.mean(_components(lambda d: jax.vmap(d.cdf)(middle), likelihood, outputs, noise), axis=0)
            < levels[:, None, None]
        )
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    if outputs.shape[0] > 1:
        low, high = jax.lax.fori_loop(0, 32 if low.dtype == jnp.float32 else 60, halve, (low, high))
    return jnp.swapaxes(0.5 * (low + high), 0, 1)
