"""Mass matrices: metrics in which the posterior is nearly isotropic, estimated from the draws of all chains.

They are held as inverse mass matrices, estimates of the posterior covariance, in the form that the kernels take.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.adaptation.mass_matrix import welford_algorithm
from blackjax.adaptation.metric_estimators import fisher_score_low_rank
from blackjax.mcmc.metrics import LowRankInverseMassMatrix
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree

_PRIOR_DRAWS = 5.0
"""Pseudo-draws with a thousandth of the current variance, added so that no variance is estimated as zero."""


class Mass(Module):
    """A family of mass matrices, and how its members are estimated from draws."""

    @abc.abstractmethod
    def first(self, variance: Array) -> PyTree:
        """Inverse mass matrix with this diagonal, (dimensions,)."""

    @abc.abstractmethod
    def nothing(self, num: int) -> PyTree:
        """Statistics of one chain before its first draw, in `num` dimensions."""

    @abc.abstractmethod
    def add(self, gathered: PyTree, position: Array, gradient: Array) -> PyTree:
        """Statistics after one more draw, with the gradient of the log density there."""

    @abc.abstractmethod
    def estimate(self, gathered: PyTree, current: PyTree) -> PyTree:
        """Inverse mass matrix from the statistics of all chains (a leading axis); `current` if draws are too few."""


class Diagonal(Mass):
    """A diagonal matrix: the marginal variances, pooled over the draws of all chains."""

    def first(self, variance: Array) -> Array:
        """The variances themselves, as a vector."""
        return variance

    def nothing(self, num: int) -> PyTree:
        """Statistics without any draws."""
        return welford_algorithm(True)[0](num)

    def add(self, gathered: PyTree, position: Array, gradient: Array) -> PyTree:
        """Statistics after Welford's update."""
        return welford_algorithm(True)[1](gathered, position)

    def estimate(self, gathered: PyTree, current: Array) -> Array:
        """Pooled variances, shrunk a little (see `_PRIOR_DRAWS`)."""
        return _shrunk(*_pooled(gathered), current)


class Dense(Mass):
    """The full covariance matrix, pooled over the draws of all chains: for some hundred unknowns at most."""

    def first(self, variance: Array) -> Array:
        """A diagonal matrix in dense form."""
        return jnp.diag(variance)

    def nothing(self, num: int) -> PyTree:
        """Statistics without any draws."""
        return welford_algorithm(False)[0](num)

    def add(self, gathered: PyTree, position: Array, gradient: Array) -> PyTree:
        """Statistics after Welford's update."""
        return welford_algorithm(False)[1](gathered, position)

    def estimate(self, gathered: PyTree, current: Array) -> Array:
        """Pooled covariance, with correlations shrunk: with fewer draws than dimensions it would be singular."""
        count, covariance = _pooled(gathered)
        diagonal = jnp.diag(_shrunk(count, jnp.diagonal(covariance), jnp.diagonal(current)))
        trust = count / (count + covariance.shape[-1])
        return jnp.where(count > 1, trust * covariance + (1.0 - trust) * diagonal, current)


class Gathered(NamedTuple):
    """The last draws of a chain, and the gradients there."""

    draws: Array
    gradients: Array
    num: Array


class LowRank(Mass):
    r"""A diagonal and a few directions, :math:`D^{1/2} (I + U (\Lambda - I) U^\top) D^{1/2}`, from draws and gradients.

    It minimises the Fisher divergence of the draws :cite:p:`seyboldt2026preconditioning`.

    Parameters
    ----------
    rank
        Number of directions.
    window
        Number of a chain's last draws that are used.
    """

    rank: int = eqx.field(static=True, default=10)
    window: int = eqx.field(static=True, default=50)

    def __check_init__(self):
        if self.rank < 1 or self.window <= self.rank:
            raise InputError(
                "a rank of at least 1 and a window above it", f"{self.rank} and {self.window}", "Try LowRank(10, 50)."
            )

    def first(self, variance: Array) -> LowRankInverseMassMatrix:
        """A diagonal matrix, without directions."""
        num, rank = variance.shape[0], min(self.rank, variance.shape[0])
        return LowRankInverseMassMatrix(jnp.sqrt(variance), jnp.eye(num, rank), jnp.ones(rank))

    def nothing(self, num: int) -> Gathered:
        """Statistics without any draws."""
        return Gathered(jnp.zeros((self.window, num)), jnp.zeros((self.window, num)), jnp.zeros((), jnp.int32))

    def add(self, gathered: Gathered, position: Array, gradient: Array) -> Gathered:
        """Store the draw and its gradient in place of the oldest."""
        place = gathered.num % self.window
        draws, gradients = gathered.draws.at[place].set(position), gathered.gradients.at[place].set(gradient)
        return Gathered(draws, gradients, gathered.num + 1)

    def estimate(self, gathered: Gathered, current: LowRankInverseMassMatrix) -> LowRankInverseMassMatrix:
        """Estimate from the last draws of all chains, once every chain has filled its window."""
        draws, gradients = (a.reshape(-1, a.shape[-1]) for a in (gathered.draws, gathered.gradients))
        matrix = fisher_score_low_rank(draws, gradients, current.lam.shape[0])
        enough = jnp.all(gathered.num >= self.window)
        return jax.tree.map(lambda new, old: jnp.where(enough, new, old), matrix, current)


def _pooled(gathered: Any) -> tuple[Array, Array]:
    """Number of draws in all chains, and their (co)variance about the common mean."""
    count = jnp.sum(gathered.sample_size).astype(gathered.mean.dtype)
    share = gathered.sample_size / jnp.maximum(count, 1.0)
    mean = jnp.tensordot(share, gathered.mean, axes=1)
    apart = gathered.mean - mean[None]
    spread = apart**2 if gathered.m2.ndim == apart.ndim else apart[:, :, None] * apart[:, None, :]
    between = jnp.tensordot(gathered.sample_size.astype(spread.dtype), spread, axes=1)
    return count, (jnp.sum(gathered.m2, axis=0) + between) / jnp.maximum(count - 1.0, 1.0)


def _shrunk(count: Array, variance: Array, current: Array) -> Array:
    trust = count / (count + _PRIOR_DRAWS)
    return jnp.where(count > 1, trust * variance + (1.0 - trust) * 1e-3 * current, current)
