r"""From normal outputs to class probabilities, :math:`\int \text{softmax}(f) \, N(f; \mu, \Sigma) \, df`."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma, entr

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.predict.points import normal_points

_NODES = 64
"""Number of points used to split the entropy into its aleatoric and epistemic parts."""


class Link(Module):
    """A way to compute class probabilities from the mean and covariance of the logits."""

    @abc.abstractmethod
    def probs(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Class probabilities (points, classes) and aleatoric entropy in nats (points,), from normal logits."""


class Quadrature(Link):
    """Class probabilities averaged over quasi-random points of the normal distribution of the logits.

    Compared with 16,000 draws on random covariances of 10 logits, 128 points are off by 0.001 nats, `Probit` by 0.04.

    Parameters
    ----------
    nodes
        Number of points, in mirrored pairs.
    """

    nodes: int = eqx.field(static=True, default=128)

    def __check_init__(self):
        if self.nodes < 2:
            raise InputError("at least 2 nodes", f"{self.nodes}", "Try links.Quadrature(128).")

    def probs(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Class probabilities and their entropy, averaged over the points."""
        p = jax.nn.softmax(normal_points(mean, covariance, self.nodes), axis=-1)
        return jnp.mean(p, axis=0), jnp.mean(jnp.sum(entr(p), axis=-1), axis=0)


class Probit(Link):
    r"""Logits divided by :math:`\sqrt{1 + \pi s^2 / 8}`, with :math:`s^2` their variance :cite:p:`mackay1992evidence`.

    For two classes :math:`s^2` is the variance of the difference of the logits. The aleatoric share of the entropy is
    estimated at 64 points of the normal distribution of the logits.
    """

    def probs(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Softmax of the scaled logits, and its entropy times the aleatoric share."""
        variance = jnp.diagonal(covariance, axis1=1, axis2=2)
        if mean.shape[-1] == 2:
            variance = jnp.sum(variance, axis=-1, keepdims=True) - 2.0 * covariance[:, 0, 1][:, None]
        p = jax.nn.softmax(mean * jax.lax.rsqrt(1.0 + jnp.pi / 8.0 * variance), axis=-1)
        return p, jnp.sum(entr(p), axis=-1) * _share(mean, covariance)


class Bridge(Link):
    """The Dirichlet distribution that matches the normal logits, the Laplace bridge :cite:p:`hobbhahn2022fast`."""

    def probs(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """The mean of the Dirichlet, and its expected entropy in closed form."""
        num = mean.shape[-1]
        sums = jnp.sum(covariance, axis=-1)
        total = jnp.maximum(jnp.sum(sums, axis=-1), 1e-30)
        mean = mean - sums * (jnp.sum(mean, axis=-1) / total)[:, None]
        variance = jnp.diagonal(covariance, axis1=1, axis2=2) - sums**2 / total[:, None]
        variance = jnp.maximum(variance, 1e-9)
        ratio = jnp.exp(mean + jax.nn.logsumexp(-mean, axis=-1, keepdims=True)) / num**2
        alpha = (1.0 - 2.0 / num + ratio) / variance
        alpha_sum = jnp.sum(alpha, axis=-1)
        p = alpha / alpha_sum[:, None]
        return p, jnp.maximum(digamma(alpha_sum + 1.0) - jnp.sum(p * digamma(alpha + 1.0), axis=-1), 0.0)


class MonteCarlo(Link):
    """Class probabilities averaged over draws of functions of the linearised network, the same draws at all points.

    Parameters
    ----------
    num
        Number of functions.
    """

    num: int = eqx.field(static=True, default=100)

    def __check_init__(self):
        if self.num < 1:
            raise InputError("at least 1 function", f"{self.num}", "Try predict.links.MonteCarlo(100).")

    def probs(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """The answer of `Quadrature` with `num` nodes, where only the mean and covariance of the logits are given."""
        return Quadrature(self.num).probs(mean, covariance)


def _share(mean: Array, covariance: Array) -> Array:
    """The aleatoric share of the entropy of the mean probabilities, (points,)."""
    p = jax.nn.softmax(normal_points(mean, covariance, _NODES), axis=-1)
    aleatoric = jnp.mean(jnp.sum(entr(p), axis=-1), axis=0)
    total = jnp.sum(entr(jnp.mean(p, axis=0)), axis=-1)
    return jnp.where(total > 0, jnp.minimum(aleatoric / jnp.maximum(total, 1e-30), 1.0), 1.0)
