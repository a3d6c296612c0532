r"""From normal outputs to class probabilities, :math:`\int \text{softmax}(f) \, N(f; \mu, \Sigma) \, df`."""

import abc
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma, entr
from scipy.special import ndtri

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError

_NODES = 64
"""Points that share out the entropy between noise and weights."""


class Link(Module):
    """A way to class probabilities from the mean and covariance of outputs."""

    @abc.abstractmethod
    def probs(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """From logits (points, classes): probabilities (points, classes), aleatoric entropy in nats (points,)."""


class Quadrature(Link):
    """Class probabilities averaged over evenly spread points of the normal distribution of the logits.

    Against 16,000 draws on random covariances of 10 logits, 128 points are 0.001 nats off where `Probit` is 0.04.

    Parameters
    ----------
    nodes
        How many points, in mirrored pairs.
    """

    nodes: int = eqx.field(static=True, default=128)

    def __check_init__(self):
        if self.nodes < 2:
            raise InputError("at least 2 nodes", f"{self.nodes}", "Try links.Quadrature(128).")

    def probs(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Means over the points, of probabilities and of their entropy."""
        p = jax.nn.softmax(_points(mean, covariance, self.nodes), axis=-1)
        return jnp.mean(p, axis=0), jnp.mean(jnp.sum(entr(p), axis=-1), axis=0)


class Probit(Link):
    r"""Logits divided by :math:`\sqrt{1 + \pi s^2 / 8}`, with :math:`s^2` their variance :cite:p:`mackay1992evidence`.

    Of two classes it is the variance of the difference of their logits. The split of the entropy is shared out by 64
    points of the normal distribution of the logits.
    """

    def probs(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Softmax of the shrunken logits."""
        variance = jnp.diagonal(covariance, axis1=1, axis2=2)
        if mean.shape[-1] == 2:
            variance = jnp.sum(variance, axis=-1, keepdims=True) - 2.0 * covariance[:, 0, 1][:, None]
        p = jax.nn.softmax(mean * jax.lax.rsqrt(1.0 + jnp.pi / 8.0 * variance), axis=-1)
        return p, jnp.sum(entr(p), axis=-1) * _share(mean, covariance)


class Bridge(Link):
    """The Dirichlet distribution that matches the normal logits, the Laplace bridge :cite:p:`hobbhahn2022fast`."""

    def probs(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """The Dirichlet's mean, and its expected entropy in closed form."""
        num = mean.shape[-1]
        sums = jnp.sum(covariance, axis=-1)
        total = jnp.maximum(jnp.sum(sums, axis=-1), 1e-30)
        mean = mean - sums * (jnp.sum(mean, axis=-1) / total)[:, None]
        variance = jnp.diagonal(covariance, axis1=1, axis2=2) - sums**2 / total[:, None]
        variance = jnp.maximum(variance, 1e-9)
        ratio = jnp.exp(mean + jax.nn.logsumexp(-mean, axis=-1, keepdims=True)) / num**2
        alpha = (1.0 - 2.0 / num + ratio) / variance
        whole = jnp.sum(alpha, axis=-1)
        p = alpha / whole[:, None]
        return p, jnp.maximum(digamma(whole + 1.0) - jnp.sum(p * digamma(alpha + 1.0), axis=-1), 0.0)


class MonteCarlo(Link):
    """Class probabilities averaged over functions of the linearised network, the same at all points.

    Parameters
    ----------
    num
        How many functions.
    """

    num: int = eqx.field(static=True, default=100)

    def __check_init__(self):
        if self.num < 1:
            raise InputError("at least 1 function", f"{self.num}", "Try predict.links.MonteCarlo(100).")

    def probs(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Without functions, `Quadrature` with as many nodes."""
        return Quadrature(self.num).probs(mean, covariance)


def _share(mean: Array, covariance: Array) -> Array:
    """How much of the entropy of the mean probabilities is there with known weights, (points,)."""
    p = jax.nn.softmax(_points(mean, covariance, _NODES), axis=-1)
    known = jnp.mean(jnp.sum(entr(p), axis=-1), axis=0)
    whole = jnp.sum(entr(jnp.mean(p, axis=0)), axis=-1)
    return jnp.where(whole > 0, jnp.minimum(known / jnp.maximum(whole, 1e-30), 1.0), 1.0)


def _points(mean: Array, covariance: Array, num: int) -> Array:
    """Evenly spread points of normal distributions, (num, points, outputs): one line of them for two classes."""
    width = mean.shape[-1]
    if width == 2:
        return _line(mean, covariance, num)
    spread = jnp.asarray(_mirrored(width, num), mean.dtype)
    jitter = 1e-6 * jnp.mean(jnp.diagonal(covariance, axis1=1, axis2=2), axis=-1) + 1e-12
    root = jnp.linalg.cholesky(covariance + jitter[:, None, None] * jnp.eye(width)[None])
    return mean[None] + jnp.einsum("nij,sj->sni", root, spread)


def _line(mean: Array, covariance: Array, num: int) -> Array:
    """Of two logits only the difference counts."""
    variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2.0 * covariance[:, 0, 1]
    spread = jnp.asarray(_mirrored(1, num)[:, 0], mean.dtype)
    moved = spread[:, None] * jnp.sqrt(jnp.maximum(variance, 0.0))[None]
    return mean[None] + jnp.stack([-0.5 * moved, 0.5 * moved], axis=-1)


@functools.cache
def _mirrored(width: int, num: int) -> np.ndarray:
    """Standard normal points in pairs that mirror each other, of variance 1, (num, width)."""
    from scipy.stats import qmc

    half = max(num // 2, 1)
    uniform = qmc.Sobol(width, rng=0).random(1 << (half - 1).bit_length())[:half]
    points = ndtri(np.clip(uniform, 1e-7, 1.0 - 1e-7))
    both = np.concatenate([points, -points])
    return both / np.sqrt(np.mean(both**2, axis=0))
