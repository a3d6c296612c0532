r"""Metropolis steps over paths of stochastic gradients :cite:p:`zhang2020amagold`.

With mass :math:`A^{-1}`, :math:`\epsilon = \sqrt\eta` and :math:`b = \alpha / (2 - \alpha)`, a path drifts for half a
step, then takes turns of

.. math::

    p' = \frac{(1 - b) p + \epsilon g + 2 \sqrt b \, A^{-1/2} \xi}{1 + b}, \qquad w' = w + \epsilon A p',

of which the last drift is again a half. Run back with the same batches it is as probable up to

.. math::

    \log \frac{q(\text{back})}{q(\text{forth})} = \text{kinetic energy gained}
    - \tfrac\epsilon2 \sum g^\top A (p + p'),

so that the rule of Metropolis and Hastings needs the log posterior at both ends and nothing else of all rows: however
noisy its gradients, the path is a fair proposal. Batches of a path are drawn independently.
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
    """Where a path ended, whether it was accepted or not."""

    motion: Motion
    log_density: Array
    """Of the state reached."""
    acceptance: Array


class Correction(Module):
    """A Metropolis step after every path of `length` gradients."""

    length: eqx.AbstractVar[int]
    exact: eqx.AbstractClassVar[bool]
    """Whether the posterior is left as it is."""
    rows: eqx.AbstractVar[Any]

    def settled(self, data: Data | Stream) -> "Correction":
        """With all rows at hand."""
        return dataclasses.replace(self, rows=Everything.of(data, type(self).__name__))

    @property
    @abc.abstractmethod
    def deciding(self) -> int:
        """How many rows the log posterior is taken of."""

    @abc.abstractmethod
    def log_densities(self, key: Key, target: Target, begin: Array, end: Array) -> tuple[Array, Array]:
        """The log posterior at both ends."""

    def price(self, target: Target, batch: Data) -> Any:
        """How many times a path looks at all rows."""
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
        """A path, accepted or not; `batch` says how many rows a gradient takes."""
        key_path, key_ends, key_accept = jax.random.split(key, 3)
        epsilon, damping = jnp.sqrt(step_size), motion.friction / (2.0 - motion.friction)
        begin, p = motion.position, jnp.sqrt(motion.step_size) * motion.momentum
        memory = estimator.begin(target, begin)

        def turn(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            w, p, work = carry
            key_rows, key_noise = jax.random.split(jax.random.fold_in(key_path, i))
            rows = self.rows.some(key_rows, batch.capacity)
            g = estimator.slope(target, memory, w, rows).gradient
            shake = shaken(metric, normal(key_noise, w.shape, w.dtype))
            pushed = ((1.0 - damping) * p + epsilon * g + 2.0 * jnp.sqrt(damping) * shake) / (1.0 + damping)
            work = work - 0.5 * epsilon * jnp.vdot(g, times(metric, p + pushed))
            part = jnp.where(i == self.length - 1, 0.5, 1.0)
            return w + part * epsilon * times(metric, pushed), pushed, work

        first = begin + 0.5 * epsilon * times(metric, p), p, jnp.zeros((), begin.dtype)
        end, moved, work = jax.lax.fori_loop(0, self.length, turn, first)
        before, after = self.log_densities(key_ends, target, begin, end)
        log_ratio = after - before + work
        acceptance = jnp.exp(jnp.minimum(jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio), 0.0))
        accepted = jax.random.uniform(key_accept, (), acceptance.dtype) < acceptance
        position, p = jnp.where(accepted, end, begin), jnp.where(accepted, moved, -p)
        reached = Motion(position, p / epsilon, motion.friction, step_size)
        return Proposal(reached, jnp.where(accepted, after, before), acceptance)


class Metropolis(Correction):
    """By the log posterior of all rows: exact.

    Parameters
    ----------
    length
        Gradients a path. With 1 it is paid for at every step; longer paths share its price
        :cite:p:`zhang2020amagold`.
    """

    length: int = 1
    rows: Any = None
    exact = True

    def __check_init__(self):
        _check_length(self.length)

    @property
    def deciding(self) -> int:
        """All."""
        return self.rows.num

    def log_densities(self, key: Key, target: Target, begin: Array, end: Array) -> tuple[Array, Array]:
        """Of all rows."""
        like = shapes(target.model)
        before, after = (self.rows.log_density(target, unravel(like, w)) for w in (begin, end))
        return before, after


class MinibatchMetropolis(Correction):
    r"""By the log posterior of some rows, rescaled: approximate.

    The ratio is unbiased in its logarithm, not itself. With a variance :math:`s^2` of the log ratio it
    samples a flatter density, and unless `num` is of the order of N it may be further from the posterior than steps
    without any correction.

    Parameters
    ----------
    num
        How many rows decide, the same at both ends of a path.
    length
        Gradients a path.
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
        """As told."""
        return self.num

    def log_densities(self, key: Key, target: Target, begin: Array, end: Array) -> tuple[Array, Array]:
        """Of the same rows."""
        like, some = shapes(target.model), self.rows.some(key, self.num)
        before, after = (target.log_density(unravel(like, w), some) for w in (begin, end))
        return before, after


def _check_length(length: int) -> None:
    if isinstance(length, float) or length < 1:
        raise InputError("length as a whole number of at least 1", f"{length}", "Try 10.")
