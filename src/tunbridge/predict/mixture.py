"""Mixtures of a likelihood's distributions with one component per network: the base of all such predictives."""

import abc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from tunbridge.core.data import Data
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.core.tree import on_host
from tunbridge.core.types import Key
from tunbridge.predict.base import AbstractPredictive
from tunbridge.predict.outputs import Outputs


class MixturePredictive(AbstractPredictive):
    r"""The mixture :math:`p(y) = \frac1S \sum_s p(y \mid f_s(x), \sigma_s)` over S networks."""

    def __init__(self, outputs: Outputs):
        self._outputs = outputs

    @property
    @abc.abstractmethod
    def _shape(self) -> tuple[int, ...]:
        """The shape of y."""

    def log_prob(self, y: Any) -> Array:
        """Log p(y), jointly over outputs, (points,)."""
        return self._outputs.answer(_log_prob, self._checked(y))

    def log_probs(self, y: Any) -> Array:
        """Log p(y) under each network, jointly over outputs, (networks, points)."""
        return on_host(lambda log_p: log_p.swapaxes(0, 1), self._outputs.answer(_log_probs, self._checked(y)))

    @checked
    def replicates(self, key: Key) -> Array:
        """A draw of y from each network, (networks, points, ...)."""
        return self._drawn(key, np.arange(self._outputs.num_components), 1)

    @checked
    def sample(self, key: Key, num: Count) -> Array:
        """Draws of y, (num, points, ...). Each uses one network at all points."""
        key_which, key_y = jax.random.split(key)
        which = jax.random.randint(key_which, (num,), 0, self._outputs.num_components)
        return self._drawn(key_y, which, num)

    def _drawn(self, key: Key, which: Any, cost: int) -> Array:
        rows = np.arange(len(self._outputs.x))
        drawn = self._outputs.answer(_sample, rows, common=(key, which), cost=cost)
        return on_host(lambda draws: draws.swapaxes(0, 1), drawn)

    def _checked(self, y: Any) -> np.ndarray:
        rows = Data(self._outputs.x, y)  # refuses other lengths, NaN and infinity
        values = self._outputs.model.likelihood.check(rows.y)
        if values.shape != self._shape:
            raise InputError(f"y of shape {self._shape}", f"shape {values.shape}", "Pass the targets of x.")
        return np.asarray(values)


def _log_probs(likelihood, outputs, noise, y):
    return jax.vmap(lambda o, z: likelihood.distribution(o, z).log_prob(y), out_axes=1)(outputs, noise)


def _log_prob(likelihood, outputs, noise, y):
    return logsumexp(_log_probs(likelihood, outputs, noise, y), axis=1) - jnp.log(outputs.shape[0])


def _sample(likelihood, outputs, noise, key, which, rows):
    """Draws (points, num, ...): draw i uses component which[i] at every point; its noise keys fold in i and the row."""

    def draw(index, component):
        z = jax.tree.map(lambda leaf: leaf[component], noise)

        def point(row, output):
            key_point = jax.random.fold_in(jax.random.fold_in(key, index), row)
            return likelihood.distribution(output[None], z).sample(key_point)[0]

        return jax.vmap(point)(rows, outputs[component])

    draws = jax.lax.map(lambda pair: draw(*pair), (jnp.arange(len(which)), which))
    return jnp.swapaxes(draws, 0, 1)
