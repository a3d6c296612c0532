"""Warm-up as part of the state: a step size that follows acceptance, and a mass matrix agreed on when chains meet.

Every chain adapts its own step size at every step, by dual averaging :cite:p:`hoffman2014nuts`. At a few meetings all
chains pool what they have gathered: one mass matrix and one step size for all, from several times the draws that a
chain has seen by itself.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.adaptation.step_size import DualAveragingAdaptationState, dual_averaging_adaptation
from jax import Array

from tunbridge.core.types import PyTree
from tunbridge.inference.mcmc.mass import Mass

_PERCENT = (10, 25, 50, 90, 100)
"""When chains meet, in percent of warm-up. At the first they forget how they came, at the last only the step is set."""


_GAMMA = 0.05, 0.5
"""How calmly the step size is moved, until the first meeting and from then on: a nervous one oscillates around the step
where acceptance falls off, and its average comes out too small."""
NUM_MEETINGS = len(_PERCENT)


def learns(left: Array) -> Array:
    """Whether a mass matrix is learnt at the meeting that has `left` to come, itself among them."""
    return (left < NUM_MEETINGS) & (left > 1)


def meetings(warmup: int) -> tuple[int, ...]:
    """The steps after which chains meet."""
    return tuple(warmup * percent // 100 for percent in _PERCENT)


class Tuning(NamedTuple):
    """What adapts while `left` is above 0."""

    averaging: DualAveragingAdaptationState
    inverse_mass: PyTree
    gathered: PyTree
    left: Array
    """Meetings that lie ahead."""

    @property
    def step_size(self) -> Array:
        """The one to try next while adapting, then the averaged one."""
        log_step = jnp.where(self.left > 0, self.averaging.log_step_size, self.averaging.log_step_size_avg)
        return jnp.exp(log_step)


class Report(NamedTuple):
    """What a chain tells the others."""

    log_step: Array
    inverse_mass: PyTree
    gathered: PyTree


def begin(mass: Mass, variance: Array, step_size: Array, warmup: Array) -> Tuning:
    """Before the first step. Without warm-up the step size stays as it is."""
    left = jnp.where(warmup > 0, NUM_MEETINGS, 0).astype(jnp.int32)
    return Tuning(_averaging(jnp.log(step_size)), mass.first(variance), mass.nothing(variance.shape[0]), left)


def _averaging(log_step: Array) -> DualAveragingAdaptationState:
    """Around a step size that is trusted already: the usual pull towards ten times as much would waste steps."""
    begun = dual_averaging_adaptation(0.8)[0](jnp.exp(log_step))
    return begun._replace(log_step_size_avg=log_step, mu=log_step)


def follow(tuning: Tuning, mass: Mass, position: Array, slope: Array, acceptance: Array, wanted: Any) -> Tuning:
    """After a step, while adapting: its draw gathered, its acceptance answered."""

    def adapt() -> Tuning:
        gamma = jnp.where(tuning.left == NUM_MEETINGS, *_GAMMA)
        averaging = dual_averaging_adaptation(wanted, gamma=gamma)[1](tuning.averaging, acceptance)
        return tuning._replace(averaging=averaging, gathered=mass.add(tuning.gathered, position, slope))

    return jax.lax.cond(tuning.left > 0, adapt, lambda: tuning)


def report(tuning: Tuning) -> Report:
    """The averaged step size, the metric so far, and what was gathered since the last meeting."""
    return Report(tuning.averaging.log_step_size_avg, tuning.inverse_mass, tuning.gathered)


def meet(tuning: Tuning, mass: Mass, reports: Report) -> Tuning:
    """One mass matrix and one step size for all: the estimate is shrunk towards the first chain's metric so far."""
    log_step = jnp.mean(reports.log_step)
    found = mass.estimate(reports.gathered, jax.tree.map(lambda each: each[0], reports.inverse_mass))
    inverse_mass = jax.tree.map(lambda new, old: jnp.where(learns(tuning.left), new, old), found, tuning.inverse_mass)
    nothing = jax.tree.map(jnp.zeros_like, tuning.gathered)
    return Tuning(_averaging(log_step), inverse_mass, nothing, tuning.left - 1)
