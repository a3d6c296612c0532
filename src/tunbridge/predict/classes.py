"""Predictive distributions over classes, unordered and ordered."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import entr, logsumexp

from tunbridge.core.tree import on_host
from tunbridge.predict.base import levels_of, values_at
from tunbridge.predict.mixture import MixturePredictive


class _Classes(MixturePredictive):
    """Base class of predictives over classes."""

    @cached_property
    def _split(self) -> tuple[Array, Array, Array]:
        return self._outputs.answer(split_entropy)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (len(self._outputs.x),)

    @cached_property
    def functions(self) -> Array:
        """Class probabilities of each network, (networks, points, classes)."""
        return on_host(lambda probs: probs.swapaxes(0, 1), self._outputs.answer(_all_probs))

    @property
    def probs(self) -> Array:
        """Class probabilities (points, classes), with two columns for Bernoulli."""
        return self._split[0]

    def _shown(self) -> dict[str, Array]:
        return {"probs": self.probs}

    @property
    def mode(self) -> Array:
        """The most probable class, (points,)."""
        return on_host(lambda probs: probs.argmax(axis=-1).astype(np.int32), self.probs)

    @property
    def entropy(self) -> Array:
        """Entropy of the class, in nats, (points,)."""
        return self.total

    @property
    def aleatoric(self) -> Array:
        """Mean entropy of the networks, in nats, (points,)."""
        return self._split[1]

    @property
    def epistemic(self) -> Array:
        """Mutual information of class and weights, in nats, (points,)."""
        return self._split[2]


class ClassPredictive(_Classes):
    r"""The mixture :math:`\bar p = \frac1S \sum_s p_s` of each network's class probabilities.

    Total uncertainty is the entropy of :math:`\bar p`, aleatoric the mean entropy of the :math:`p_s`, epistemic their
    difference, the mutual information of label and weights :cite:p:`houlsby2011bayesian`. For S networks the epistemic
    part is at most log S.
    """


class OrdinalPredictive(_Classes):
    """The same mixture for ordered classes; `mean`, `quantile` and the like are those of the class number, (points, 1).

    `total`, `aleatoric` and `epistemic` are in nats, as for unordered classes, so `variance` differs from `total`.
    """

    discrete = True

    @property
    def mean(self) -> Array:
        """Expected class number, (points, 1)."""
        return self.probs @ self._numbers[:, None]

    @property
    def variance(self) -> Array:
        """Variance of the class number, (points, 1)."""
        return jnp.sum(self.probs * (self._numbers[None] - self.mean) ** 2, axis=1, keepdims=True)

    def quantile(self, q: Any) -> Array:
        """The least class whose cumulative probability reaches the level, (points, 1) or (levels, points, 1)."""
        levels = levels_of(q)
        steps = jnp.cumsum(self.probs, axis=1)[(None,) * levels.ndim]
        below = steps[..., :-1] < jnp.asarray(levels)[..., None, None]
        return jnp.sum(below, axis=-1, keepdims=True).astype(steps.dtype)

    def cdf(self, y: Any) -> Array:
        """P(Y <= y) for class numbers y, (..., points, 1)."""
        values = values_at(y, (len(self.probs), 1))
        lead = (None,) * (values.ndim - 2)
        reached = values >= self._numbers[(*lead, None)]
        return jnp.sum(jnp.where(reached, self.probs[lead], 0.0), axis=-1, keepdims=True)

    @property
    def _numbers(self) -> Array:
        return jnp.arange(self.probs.shape[1], dtype=self.probs.dtype)


def _log_probs(likelihood: Any, outputs: Array, noise: Any) -> Array:
    """Log class probabilities of each component, (components, points, classes)."""
    return jax.vmap(likelihood.log_probs)(outputs, noise)


def _all_probs(likelihood, outputs, noise):
    return jnp.swapaxes(jnp.exp(_log_probs(likelihood, outputs, noise)), 0, 1)


def split_entropy(likelihood, outputs, noise):
    """Mean probabilities (points, classes), with the aleatoric and epistemic parts of their entropy, (points,) each."""
    log_p = _log_probs(likelihood, outputs, noise)
    p = jnp.exp(log_p)
    log_mean = logsumexp(log_p, axis=0) - jnp.log(outputs.shape[0])
    aleatoric = jnp.mean(jnp.sum(entr(p), axis=-1), axis=0)
    information = jnp.sum(jnp.where(p > 0, p * (log_p - log_mean[None]), 0.0), axis=-1)
    return jax.nn.softmax(log_mean, axis=-1), aleatoric, jnp.maximum(jnp.mean(information, axis=0), 0.0)
