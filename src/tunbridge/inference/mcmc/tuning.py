"""Warm-up as part of the state: a step size tuned to acceptance, and a mass matrix pooled over chains.

Every chain adapts its own step size at every step, by dual averaging :cite:p:`hoffman2014nuts`. At a few meetings
all chains pool their statistics and agree on one mass matrix and one step size, estimated from several times as many
draws as a single chain has.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.adaptation.step_size import DualAveragingAdaptationState, dual_averaging_adaptation
from jax import Array

from tunbridge.core.types import PyTree
from tunbridge.inference.mcmc.mass import Mass

_PERCENT = (10, 25, 50, 90, 100)
"""When chains meet, in percent of warm-up. The first discards what came before, the last sets only the step size."""


_GAMMA = 0.05, 0.5
"""Damping (gamma) of dual averaging, until the first meeting and from then on: with too little damping the step size
oscillates around the value where acceptance falls off, and its average comes out too small."""
NUM_MEETINGS = len(_PERCENT)


def learns(left: Array) -> Array:
    """Whether a mass matrix is estimated at a meeting when `left` meetings, itself included, are still to come."""
    return (left < NUM_MEETINGS) & (left > 1)


def meetings(warmup: int) -> tuple[int, ...]:
    """Steps of warm-up after which chains meet."""
    return tuple(warmup * percent // 100 for percent in _PERCENT)


class Tuning(NamedTuple):
    """Tuning of one chain, which adapts while `left` is above 0."""

    averaging: DualAveragingAdaptationState
    inverse_mass: PyTree
    gathered: PyTree
    left: Array
    """Number of meetings still to come."""

    @property
    def step_size(self) -> Array:
        """The step size to try next while adapting, then the averaged one."""
        log_step = jnp.where(self.left > 0, self.averaging.log_step_size, self.averaging.log_step_size_avg)
        return jnp.exp(log_step)


class Report(NamedTuple):
    """What a chain contributes to a meeting."""

    log_step: Array
    inverse_mass: PyTree
    gathered: PyTree


def begin(mass: Mass, variance: Array, step_size: Array, warmup: Array) -> Tuning:
    """Tuning before the first step. Without warm-up the step size stays as given."""
    left = jnp.where(warmup > 0, NUM_MEETINGS, 0).astype(jnp.int32)
    return Tuning(_averaging(jnp.log(step_size)), mass.first(variance), mass.nothing(variance.shape[0]), left)


def _averaging(log_step: Array) -> DualAveragingAdaptationState:
    """Dual averaging around a trusted step size: the usual pull towards ten times that would waste steps."""
    begun = dual_averaging_adaptation(0.8)[0](jnp.exp(log_step))
    return begun._replace(log_step_size_avg=log_step, mu=log_step)


def follow(tuning: Tuning, mass: Mass, position: Array, gradient: Array, acceptance: Array, wanted: Any) -> Tuning:
    """Tuning after a step, while adapting: the draw joins the statistics, the step size follows the acceptance."""

    def adapt() -> Tuning:
        gamma = jnp.where(tuning.left == NUM_MEETINGS, *_GAMMA)
        averaging = dual_averaging_adaptation(wanted, gamma=gamma)[1](tuning.averaging, acceptance)
        return tuning._replace(averaging=averaging, gathered=mass.add(tuning.gathered, position, gradient))

    return jax.lax.cond(tuning.left > 0, adapt, lambda: tuning)


def report(tuning: Tuning) -> Report:
    """The averaged step size, the current metric, and the statistics since the last meeting."""
    return Report(tuning.averaging.log_step_size_avg, tuning.inverse_mass, tuning.gathered)


def meet(tuning: Tuning, mass: Mass, reports: Report) -> Tuning:
    """Tuning with one mass matrix and step size for all, the estimate shrunk towards the first chain's metric."""
    log_step = jnp.mean(reports.log_step)
    estimated = mass.estimate(reports.gathered, jax.tree.map(lambda leaf: leaf[0], reports.inverse_mass))
    inverse_mass = jax.tree.map(
        lambda new, old: jnp.where(learns(tuning.left), new, old), estimated, tuning.inverse_mass
    )
    nothing = jax.tree.map(jnp.zeros_like, tuning.gathered)
    return Tuning(_averaging(log_step), inverse_mass, nothing, tuning.left - 1)
