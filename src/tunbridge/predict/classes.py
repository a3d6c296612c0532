"""Predictive distributions over unordered classes."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import entr, logsumexp

from tunbridge.core.types import Key
from tunbridge.predict.outputs import Outputs
from tunbridge.predict.predictive import Predictive


class ClassPredictive(Predictive):
    r"""The mixture :math:`\bar p = \frac1S \sum_s p_s` of each network's class probabilities.

    Total uncertainty is the entropy of :math:`\bar p`, aleatoric the mean entropy of the :math:`p_s`, epistemic their
    difference, the mutual information of label and weights :cite:p:`houlsby2011bayesian`. From S networks it is at
    most log S.
    """

    def __init__(self, outputs: Outputs):
        self._outputs = outputs

    @cached_property
    def _split(self) -> tuple[Array, Array, Array]:
        return self._outputs.answer(_split_entropy)

    @property
    def probs(self) -> Array:
        """(points, classes); two columns for Bernoulli."""
        return self._split[0]

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

    def log_prob(self, y: Any) -> Array:
        """Log probability of the labels, (points,)."""
        likelihood = self._outputs.model.likelihood
        labels = likelihood.check(jnp.asarray(y))
        return self._outputs.answer(_log_prob, np.asarray(labels))

    def sample(self, key: Key, num: int) -> Array:
        """Labels, (num, points)."""
        key_which, key_y = jax.random.split(key)
        which = jax.random.randint(key_which, (num,), 0, self._outputs.num_components)
        rows = np.arange(len(self._outputs.x))
        return self._outputs.answer(sample_rows, rows, common=(key_y, which), cost=num).swapaxes(0, 1)


def _log_probs(likelihood: Any, outputs: Array, noise: Any) -> Array:
    """(components, points, classes)."""
    classes = jnp.arange(max(outputs.shape[-1], 2))

    def one(outputs, noise):
        return likelihood.distribution(outputs, noise).log_prob(classes[:, None]).T

    return jax.vmap(one)(outputs, noise)


def _split_entropy(likelihood, outputs, noise, common):
    log_p = _log_probs(likelihood, outputs, noise)
    p = jnp.exp(log_p)
    mean = jnp.mean(p, axis=0)
    mean = mean / jnp.sum(mean, axis=-1, keepdims=True)
    aleatoric = jnp.mean(jnp.sum(entr(p), axis=-1), axis=0)
    information = jnp.sum(jnp.where(p > 0, p * (log_p - jnp.log(mean)[None]), 0.0), axis=-1)
    return mean, aleatoric, jnp.maximum(jnp.mean(information, axis=0), 0.0)


def _log_prob(likelihood, outputs, noise, common, y):
    terms = jax.vmap(lambda o, z: likelihood.distribution(o, z).log_prob(y))(outputs, noise)
    return logsumexp(terms, axis=0) - jnp.log(outputs.shape[0])


def sample_rows(likelihood, outputs, noise, common, rows):
    """(points, num, ...): draw i uses component which[i] at every point; a row's noise follows from its number."""
    key, which = common

    def one(index, component):
        def point(row, output):
            key_point = jax.random.fold_in(jax.random.fold_in(key, index), row)
            return likelihood.distribution(output[None], z).sample(key_point)[0]

        z = jax.tree.map(lambda leaf: leaf[component], noise)
        return jax.vmap(point)(rows, outputs[component])

    draws = jax.lax.map(lambda pair: one(*pair), (jnp.arange(len(which)), which))
    return jnp.swapaxes(draws, 0, 1)
