r"""Metropolis steps over paths of stochastic gradients :cite:p:`zhang2020amagold`.

With mass :math:`A^{-1}`, :math:`\epsilon = \sqrt\eta` and :math:`b = \alpha / (2 - \alpha)`, a path drifts for half a
step, then repeats

.. math::

    p' = \frac{(1 - b) p + \epsilon g + 2 \sqrt b \, A^{-1/2} \xi}{1 + b}, \qquad w' = w + \epsilon A p',

where the last drift is again half a step. Run back with the same batches, it has the probability ratio

.. math::

    \log \frac{q(\text{back})}{q(\text{forth})} = \text{kinetic energy gained}
    - \tfrac\epsilon2 \sum g^\top A (p + p'),

so that the Metropolis-Hastings rule needs the log posterior of all rows at both ends, and all rows for nothing else:
however noisy its gradients, the path is a valid proposal. The batches of a path are drawn independently.
"""

import abc
import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.random import normal
from tunbridge.core.tree import unravel
from tunbridge.core.types import Key
from tunbridge.inference.sampler import shapes
from tunbridge.inference.sgmcmc.everything import Everything
from tunbridge.inference.sgmcmc.preconditioners import Metric, shaken, times
from tunbridge.inference.sgmcmc.splittings import Motion
from tunbridge.inference.sgmcmc.subsampling import Estimator
from tunbridge.model.model import Target

__all__ = ["Correction", "Metropolis", "MinibatchMetropolis"]


class Proposal(NamedTuple):
    """The state after a path was accepted or rejected."""

    motion: Motion
    log_density: Array
    """Log posterior of that state."""
    acceptance: Array


class Correction(Module):
    """A Metropolis step after every path of `length` gradients."""

    length: eqx.AbstractVar[int]
    exact: eqx.AbstractClassVar[bool]
    """Whether the posterior is left invariant."""
    rows: eqx.AbstractVar[Any]

    def settled(self, data: Data | Stream) -> "Correction":
        """The correction bound to the whole data set."""
        return dataclasses.replace(self, rows=Everything.of(data, type(self).__name__))

    @property
    @abc.abstractmethod
    def deciding(self) -> int:
        """Number of rows in the log posterior that decides."""

    @abc.abstractmethod
    def log_densities(self, key: Key, target: Target, begin: Array, end: Array) -> tuple[Array, Array]:
        """Log posterior at both ends of a path."""

    def price(self, target: Target, batch: Data) -> Any:
        """Cost of a path, in passes over all rows."""
        return (self.length * batch.capacity + 2 * self.deciding) / target.num

    def propose(
        self,
        key: Key,
        target: Target,
        estimator: Estimator,
        motion: Motion,
        batch: Data,
        step_size: Array,
        metric: Metric | None,
    ) -> Proposal:
        """Run a path, and accept or reject it; its gradients take as many rows as `batch` has."""
        key_path, key_ends, key_accept = jax.random.split(key, 3)
        epsilon, damping = jnp.sqrt(step_size), motion.friction / (2.0 - motion.friction)
        begin, p = motion.position, jnp.sqrt(motion.step_size) * motion.momentum
        memory = estimator.begin(target, begin)

        def iteration(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            w, p, work = carry
            key_rows, key_noise = jax.random.split(jax.random.fold_in(key_path, i))
            rows = self.rows.some(key_rows, batch.capacity)
            g = estimator.estimate(target, memory, w, rows).gradient
            noise = shaken(metric, normal(key_noise, w.shape, w.dtype))
            pushed = ((1.0 - damping) * p + epsilon * g + 2.0 * jnp.sqrt(damping) * noise) / (1.0 + damping)
            work = work - 0.5 * epsilon * jnp.vdot(g, times(metric, p + pushed))
            fraction = jnp.where(i == self.length - 1, 0.5, 1.0)
            return w + fraction * epsilon * times(metric, pushed), pushed, work

        first = begin + 0.5 * epsilon * times(metric, p), p, jnp.zeros((), begin.dtype)
        end, p_end, work = jax.lax.fori_loop(0, self.length, iteration, first)
        before, after = self.log_densities(key_ends, target, begin, end)
        log_ratio = after - before + work
        acceptance = jnp.exp(jnp.minimum(jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio), 0.0))
        accepted = jax.random.uniform(key_accept, (), acceptance.dtype) < acceptance
        position, p = jnp.where(accepted, end, begin), jnp.where(accepted, p_end, -p)
        reached = Motion(position, p / epsilon, motion.friction, step_size)
        return Proposal(reached, jnp.where(accepted, after, before), acceptance)


class Metropolis(Correction):
    """Accepts a path by the log posterior of all rows: exact.

    Parameters
    ----------
    length
        Gradients per path. With 1 the log posterior of all rows is evaluated at every step; longer paths share its cost
        :cite:p:`zhang2020amagold`.
    """

    length: int = 1
    rows: Any = None
    exact = True

    def __check_init__(self):
        _check_length(self.length)

    @property
    def deciding(self) -> int:
        """All rows decide."""
        return self.rows.num

    def log_densities(self, key: Key, target: Target, begin: Array, end: Array) -> tuple[Array, Array]:
        """Log posterior of all rows at both ends of a path."""
        like = shapes(target.model)
        before, after = (self.rows.log_density(target, unravel(like, w)) for w in (begin, end))
        return before, after


class MinibatchMetropolis(Correction):
    r"""Accepts a path by the log posterior of some rows, rescaled: approximate.

    The log ratio is unbiased, the ratio itself is not. If the log ratio has the variance :math:`s^2`, the chain
    samples a flatter density, which may be further from the posterior than that of steps without any correction,
    unless `num` is of the order of N.

    Parameters
    ----------
    num
        Number of rows that decide, the same at both ends of a path.
    length
        Gradients per path.
    """

    num: int = eqx.field(default=1000, static=True)
    length: int = 1
    rows: Any = None
    exact = False

    def __check_init__(self):
        _check_length(self.length)
        if self.num < 1:
            raise InputError("num as a whole number of at least 1", f"{self.num}", "Try 1000.")

    @property
    def deciding(self) -> int:
        """`num` rows."""
        return self.num

    def log_densities(self, key: Key, target: Target, begin: Array, end: Array) -> tuple[Array, Array]:
        """Rescaled log posterior of the same random rows at both ends of a path."""
        like, rows = shapes(target.model), self.rows.some(key, self.num)
        before, after = (target.log_density(unravel(like, w), rows) for w in (begin, end))
        return before, after


def _check_length(length: int) -> None:
    if isinstance(length, float) or length < 1:
        raise InputError("length as a whole number of at least 1", f"{length}", "Try 10.")
