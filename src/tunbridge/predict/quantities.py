"""The base class of predictives over numbers and counts: moments, quantiles, distribution functions."""

import abc
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.blocks import evenly
from tunbridge.core.tree import on_host
from tunbridge.predict import marginals
from tunbridge.predict.base import levels_of, targets, values_at
from tunbridge.predict.marginals import components
from tunbridge.predict.mixture import MixturePredictive

MOST_COMPONENTS = 32
"""The most components around which the mode is searched and the entropy of numbers is integrated."""


class QuantityPredictive(MixturePredictive):
    """A mixture over numbers or counts, marginally per output."""

    @property
    @abc.abstractmethod
    def _inverse(self) -> Callable:
        """The function, for `Outputs.answer`, that computes quantiles (points, levels, outputs)."""

    @property
    @abc.abstractmethod
    def _profile(self) -> tuple[Array, Array]:
        """Mode and entropy, (points, outputs) each."""

    @property
    def mode(self) -> Array:
        """The most probable value found near the components' centres, (points, outputs)."""
        return self._profile[0]

    @property
    def entropy(self) -> Array:
        """Entropy of each output in nats, (points, outputs); differential entropy for numbers."""
        return self._profile[1]

    @cached_property
    def _moments(self) -> tuple[Array, Array, Array]:
        return self._outputs.answer(moments)

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
        return on_host(_swapped, self._outputs.answer(_means))

    @property
    def variance(self) -> Array:
        """Aleatoric + epistemic, (points, outputs)."""
        return self.total

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.mean.shape

    def quantile(self, q: Any) -> Array:
        """Quantiles of the mixture, (points, outputs); for several levels (levels, points, outputs)."""
        levels = levels_of(q, jax.dtypes.canonicalize_dtype(float))
        common = np.atleast_1d(levels)
        quantiles = self._outputs.answer(self._inverse, common=(common,), cost=common.size)
        return on_host(lambda values: values[:, 0] if levels.ndim == 0 else _swapped(values), quantiles)

    def cdf(self, y: Any) -> Array:
        """P(Y <= y) per output, (..., points, outputs)."""
        num, width = self.mean.shape
        values = values_at(y, (num, width))
        leading = values.shape[:-2]
        rows = _swapped(values.reshape(-1, num, width)).astype(jax.dtypes.canonicalize_dtype(float))
        probs = self._outputs.answer(_cdf, rows, cost=rows.shape[1])
        return on_host(lambda values: _swapped(values).reshape(*leading, num, width), probs)

    def cdfs(self, y: Any) -> Array:
        """P(Y <= y) under each network, (networks, points, outputs)."""
        values = targets(y, self._shape).astype(jax.dtypes.canonicalize_dtype(float))
        return on_host(_swapped, self._outputs.answer(_cdfs, values))


def _swapped(values: np.ndarray) -> np.ndarray:
    return np.swapaxes(values, 0, 1)


def moments(likelihood, outputs, noise):
    """Mean, mean variance of the components, and variance of their means, (points, outputs) each."""
    means, variances = components(lambda d: (marginals.mean(d), marginals.variance(d)), likelihood, outputs, noise)
    mean = jnp.mean(means, axis=0)
    return mean, jnp.mean(variances, axis=0), jnp.mean((means - mean[None]) ** 2, axis=0)


def _means(likelihood, outputs, noise):
    return jnp.swapaxes(components(marginals.mean, likelihood, outputs, noise), 0, 1)


def some_components(outputs, noise):
    """Return at most 32 components, evenly spaced among all."""
    chosen = evenly(outputs.shape[0], MOST_COMPONENTS)
    return outputs[chosen], jax.tree.map(lambda leaf: leaf[chosen], noise)


def mixture_cdf(likelihood, outputs, noise, values):
    """P(Y <= values) of the mixture, for values (leading, points, outputs)."""
    cdfs = components(lambda d: jax.vmap(lambda y: marginals.cdf(d, y))(values), likelihood, outputs, noise)
    return jnp.mean(cdfs, axis=0)


def _cdf(likelihood, outputs, noise, rows):
    return jnp.swapaxes(mixture_cdf(likelihood, outputs, noise, jnp.swapaxes(rows, 0, 1)), 0, 1)


def _cdfs(likelihood, outputs, noise, y):
    return jnp.swapaxes(components(lambda d: marginals.cdf(d, y), likelihood, outputs, noise), 0, 1)
