"""Predictive distributions over unordered classes."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import entr, logsumexp

from tunbridge.predict.mixture import MixturePredictive


class ClassPredictive(MixturePredictive):
    r"""The mixture :math:`\bar p = \frac1S \sum_s p_s` of each network's class probabilities.

    Total uncertainty is the entropy of :math:`\bar p`, aleatoric the mean entropy of the :math:`p_s`, epistemic their
    difference, the mutual information of label and weights :cite:p:`houlsby2011bayesian`. From S networks it is at
    most log S.
    """

    @cached_property
    def _split(self) -> tuple[Array, Array, Array]:
        return self._outputs.answer(_split_entropy)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (len(self._outputs.x),)

    @cached_property
    def functions(self) -> Array:
        """Class probabilities of each network, (networks, points, classes)."""
        return jnp.swapaxes(self._outputs.answer(_all_probs), 0, 1)

    @property
    def probs(self) -> Array:
        """(points, classes); two columns for Bernoulli."""
        return self._split[0]

    def _shown(self) -> dict[str, Array]:
        return {"probs": self.probs}

    @property
    def mode(self) -> Array:
        """The most probable class, (points,)."""
        return jnp.argmax(self.probs, axis=-1)

    @property
    def entropy(self) -> Array:
        """Of the class, in nats, (points,)."""
        return self.total

    @property
    def aleatoric(self) -> Array:
        """Mean entropy of the networks, in nats, (points,)."""
        return self._split[1]

    @property
    def epistemic(self) -> Array:
        """Mutual information of class and weights, in nats, (points,)."""
        return self._split[2]


def _log_probs(likelihood: Any, outputs: Array, noise: Any) -> Array:
    """(components, points, classes)."""
    classes = jnp.arange(max(outputs.shape[-1], 2))

    def one(outputs, noise):
        made = likelihood.distribution(outputs, noise)
        return jax.vmap(lambda label: made.log_prob(jnp.full(outputs.shape[:1], label)), out_axes=1)(classes)

    return jax.vmap(one)(outputs, noise)


def _all_probs(likelihood, outputs, noise):
    return jnp.swapaxes(jnp.exp(_log_probs(likelihood, outputs, noise)), 0, 1)


def _split_entropy(likelihood, outputs, noise):
    log_p = _log_probs(likelihood, outputs, noise)
    p = jnp.exp(log_p)
    log_mean = logsumexp(log_p, axis=0) - jnp.log(outputs.shape[0])
    aleatoric = jnp.mean(jnp.sum(entr(p), axis=-1), axis=0)
    information = jnp.sum(jnp.where(p > 0, p * (log_p - log_mean[None]), 0.0), axis=-1)
    return jax.nn.softmax(log_mean, axis=-1), aleatoric, jnp.maximum(jnp.mean(information, axis=0), 0.0)
