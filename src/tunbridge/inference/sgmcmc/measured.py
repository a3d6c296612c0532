"""A step size that is measured in warm-up (`tuning`), and what becomes of a chain that is lost with it (`guard`)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.random import normal
from tunbridge.core.types import Key, PyTree
from tunbridge.inference.sgmcmc import guard, tuning
from tunbridge.inference.sgmcmc.guard import Guard
from tunbridge.inference.sgmcmc.preconditioners import Fisher, Metric, Preconditioner, shaken
from tunbridge.inference.sgmcmc.splittings import Motion
from tunbridge.inference.sgmcmc.state import DynamicsState
from tunbridge.inference.sgmcmc.steps import FirstStep, StepSize
from tunbridge.inference.sgmcmc.tuning import Measured, Tuning
from tunbridge.model.model import Target

if TYPE_CHECKING:
    from tunbridge.inference.sgmcmc.sampler import StochasticGradient


class Refuge(NamedTuple):
    """What a diverged chain is reset to; the fields are those of `DynamicsState`."""

    position: Array
    metric: PyTree
    anchor: PyTree
    noise: PyTree
    guard: Guard


class Report(NamedTuple):
    """A chain's report for a meeting."""

    measured: Measured
    log_step: Array
    caution: Array
    gathered: PyTree


class MeasuredStep(StepSize):
    """The largest step size that the curvature and the gradient noise allow, measured in warm-up."""

    @property
    def preconditioner(self) -> Preconditioner:
        """The inverse Fisher information, estimated from the gradients of warm-up."""
        return Fisher()

    def of(self, state: DynamicsState) -> Any:
        """The measured step size."""
        return _tuning(state).step_size

    def begin(self, sampler: "StochasticGradient", state: DynamicsState, first: FirstStep) -> DynamicsState:
        """Return the initial state with a first measurement and the descent's friction."""
        position, friction = state.position, state.motion.friction
        metric = _metric(sampler, state.metric, position)
        measured = tuning.measure(
            first.key, first.target, sampler.gradient, state.anchor, position, first.batch, metric
        )
        size = measured.step_size(friction, sampler.schedule.reach, sampler.cancellation)
        refuge = Refuge(position, state.metric, state.anchor, state.noise, guard.begin(position))
        tuned = tuning.begin(first.variance, first.gradient, measured, size, state.warmup, refuge)
        motion = state.motion._replace(
            friction=tuning.friction(friction, state.warmup), step_size=jnp.asarray(size, position.dtype)
        )
        return state._replace(motion=motion, tuning=tuned)

    def adapts(self, state: DynamicsState) -> Array:
        """True in warm-up, once the descent has left its start."""
        return (state.step < state.warmup) & (state.step >= tuning.arrival(state.warmup))

    def damping(self, sampler: "StochasticGradient", state: DynamicsState) -> Any:
        """The descent's own friction while it lasts: a colder descent would fit the noise of a small table."""
        return jnp.where(_tuning(state).descends, state.motion.friction, sampler.damping)

    def stride(
        self, sampler: "StochasticGradient", state: DynamicsState, memory: PyTree, gradient: Array, factor: Any
    ) -> tuple[Metric | None, Tuning | tuple[()], Array]:
        """Metric and step size of the descent while it lasts, then the measured ones."""
        tuned, sampling_metric, dtype = _tuning(state), _metric(sampler, memory, gradient), gradient.dtype
        size = factor * tuned.step_size

        def descend() -> tuple[Metric, Tuning, Array]:
            follows, metric = tuning.descent(tuned, gradient)
            return metric, follows, tuning.stride(state.motion.friction, state.step, state.warmup).astype(dtype)

        return jax.lax.cond(tuned.descends, descend, lambda: (sampling_metric, tuned, size.astype(dtype)))

    def either(self, state: DynamicsState, plain: Callable[[], Any], corrected: Callable[[], Any]) -> Any:
        """Uncorrected steps during the descent."""
        return jax.lax.cond(_tuning(state).descends, plain, corrected)

    def answer(
        self, sampler: "StochasticGradient", state: DynamicsState, motion: Motion, tuned: Any, acceptance: Array
    ) -> tuple[Motion, Any]:
        """Keep friction fixed in the descent; tune the step size of corrected paths to the acceptance rate."""
        motion = motion._replace(friction=jnp.where(tuned.descends, state.motion.friction, motion.friction))
        return motion, tuned if sampler.correction is None else tuning.answer(tuned, acceptance)

    def rescue(
        self, sampler: "StochasticGradient", state: DynamicsState, log_density: Array
    ) -> tuple[DynamicsState, Array]:
        """Reset a chain that is lost to its last meeting, at rest, with a smaller step size; NaN if that is no use."""
        tuned = _tuning(state)
        tuned = tuned._replace(guard=guard.follow(tuned.guard, log_density, state.step - 1))
        state, lost = state._replace(tuning=tuned), tuning.lost(tuned, state.position, log_density)
        log_density = jnp.where(lost & tuning.hopeless(tuned), jnp.nan, log_density)
        lost = lost & ~tuning.hopeless(tuned)
        tuned = tuning.slower(tuned, state.step > state.warmup)

        def restore() -> DynamicsState:
            refuge: Refuge = tuned.refuge
            friction = jnp.asarray(sampler.damping, state.motion.friction.dtype)
            motion = Motion(refuge.position, jnp.zeros_like(refuge.position), friction, tuned.step_size)
            return state._replace(
                motion=motion,
                metric=refuge.metric,
                anchor=refuge.anchor,
                tuning=tuned,
                noise=refuge.noise,
                heat=jnp.ones_like(state.heat),
            )

        next_state = jax.lax.cond(lost, restore, lambda: state)
        return next_state, jnp.where(lost, tuned.guard.mean, log_density)

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """Warm-up steps after which chains agree on a metric and a step size."""
        return tuning.meetings(warmup)

    def report(self, sampler: "StochasticGradient", state: DynamicsState) -> Report:
        """The last measurements, the log step size, and what the preconditioner gathered since the last meeting."""
        tuned = _tuning(state)
        return Report(tuned.measured, jnp.log(tuned.step_size), tuned.caution, sampler.metric.report(state.metric))

    def meet(
        self, sampler: "StochasticGradient", key: Key, target: Target, state: DynamicsState, batch: Data, reports: Any
    ) -> DynamicsState:
        """Pool the preconditioner over all chains and measure again; the last meeting sets one step size for all."""
        key_curvature, key_momentum = jax.random.split(key)
        tuned, position = _tuning(state), state.position
        last = tuned.left == 1
        stiffest = jnp.max(reports.measured.curvature / reports.caution)
        pooled = Measured(stiffest, jnp.mean(reports.measured.noise))
        gathered = sampler.metric.meet(state.metric, reports.gathered)
        memory = jax.tree.map(lambda new, old: jnp.where(last, old, new), gathered, state.metric)
        metric = _metric(sampler, memory, position)
        measured = tuning.measure(key_curvature, target, sampler.gradient, state.anchor, position, batch, metric)
        chosen = jax.tree.map(lambda old, new: jnp.where(last, old, new), pooled, measured)
        caution = jnp.min(reports.caution)
        size = chosen.step_size(sampler.damping, sampler.schedule.reach, sampler.cancellation)
        size = jnp.where(last, size, caution * size)  # the last one has counted each chain's own losses
        if sampler.correction is not None:
            size = jnp.where(last, jnp.exp(jnp.mean(reports.log_step)), size)
        size = size.astype(position.dtype)
        watch = guard.raised(tuned.guard, position.size)
        refuge = Refuge(position, memory, state.anchor, state.noise, watch)
        left = tuned.left - 1
        tuned = tuned._replace(step_size=size, measured=chosen, left=left, refuge=refuge, caution=caution, guard=watch)
        noise = shaken(metric, normal(key_momentum, position.shape, position.dtype))
        motion = Motion(position, noise / jnp.sqrt(size), jnp.asarray(sampler.damping, position.dtype), size)
        return state._replace(motion=motion, metric=memory, tuning=tuned)

    def rescued(self, state: DynamicsState) -> bool:
        """Whether the step size was ever reduced after a divergence."""
        return float(_tuning(state).caution) < 1.0

    def late(self, state: DynamicsState) -> int:
        """Number of times that the chain was reset after warm-up."""
        return int(_tuning(state).late)


def _tuning(state: DynamicsState) -> Tuning:
    return cast(Tuning, state.tuning)


def _metric(sampler: "StochasticGradient", memory: PyTree, like: Array) -> Metric:
    metric = sampler.metric.metric(memory)
    return Metric(jnp.ones_like(like), jnp.ones_like(like)) if metric is None else metric
