"""Predictive distributions over real numbers: mixtures of a likelihood's distributions."""

from collections.abc import Callable
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from scipy.special import ndtr

from tunbridge.predict import marginals
from tunbridge.predict.marginals import components
from tunbridge.predict.quantities import MOST_COMPONENTS, QuantityPredictive, mixture_cdf, some_components

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(11)
"""Gauss-Hermite nodes and weights, for integrals over a component."""


class NumberPredictive(QuantityPredictive):
    r"""The mixture :math:`p(y) = \frac1S \sum_s p(y \mid f_s(x), \sigma_s)`, marginally per output.

    Mean and variance are exact sums; quantiles invert the mixture's distribution function. The variance is split by
    the law of total variance: aleatoric is the mean variance of the components, epistemic the variance of their means.
    """

    @property
    def _inverse(self) -> Callable:
        return _quantile

    @cached_property
    def _profile(self) -> tuple[Array, Array]:
        cost = min(self._outputs.num_components, MOST_COMPONENTS) * len(_NODES)
        return self._outputs.answer(_mode_and_entropy, cost=cost)


def _mode_and_entropy(likelihood, outputs, noise):
    """Mode and entropy, from the mixture's log density at nodes around each component: h = -mean_s E_s[log p]."""
    num, chosen = outputs.shape[0], some_components(outputs, noise)
    num_chosen = chosen[0].shape[0]
    values = components(lambda d: marginals.icdf(d, jnp.asarray(ndtr(_NODES))), likelihood, *chosen)
    nodes = values.reshape(-1, *values.shape[2:])  # components and nodes flattened together
    log_p = components(lambda d: jax.vmap(d.log_prob)(nodes), likelihood, outputs, noise)
    log_p = logsumexp(log_p, axis=0) - jnp.log(num)
    mode = jnp.take_along_axis(nodes, jnp.argmax(log_p, axis=0)[None], axis=0)[0]
    weights = jnp.tile(jnp.asarray(_WEIGHTS / _WEIGHTS.sum() / num_chosen), num_chosen)
    return mode, -jnp.tensordot(weights, log_p, axes=1)


def _quantile(likelihood, outputs, noise, levels):
    """Invert the mixture's distribution function by bisection, (points, levels, outputs).

    The quantile of a mixture lies between the least and the largest of its components' quantiles.
    """
    ends = components(lambda d: marginals.icdf(d, levels), likelihood, outputs, noise)
    low, high = jnp.min(ends, axis=0), jnp.max(ends, axis=0)
    if outputs.shape[0] > 1:
        below = partial(mixture_cdf, likelihood, outputs, noise)
        low, high = marginals.bisect(below, levels[:, None, None], low, high)
    return jnp.swapaxes(0.5 * (low + high), 0, 1)
