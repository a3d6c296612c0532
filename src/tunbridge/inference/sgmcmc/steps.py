"""Where the step size of a stochastic-gradient sampler comes from: given, or measured in warm-up (`tuning`)."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.declared import Module
from tunbridge.core.random import normal
from tunbridge.core.types import Key, PyTree
from tunbridge.inference.sgmcmc import tuning
from tunbridge.inference.sgmcmc.preconditioners import Fisher, Identity, Metric, Preconditioner, shaken
from tunbridge.inference.sgmcmc.splittings import Motion
from tunbridge.inference.sgmcmc.state import DynamicsState
from tunbridge.inference.sgmcmc.tuning import Measured, Tuning
from tunbridge.model.model import Target

if TYPE_CHECKING:
    from tunbridge.inference.sgmcmc.sampler import StochasticGradient


class StepSize(Module):
    """Where a step size comes from. Its methods receive the sampler."""

    @property
    @abc.abstractmethod
    def preconditioner(self) -> Preconditioner:
        """The preconditioner of a sampler that was given none."""

    @abc.abstractmethod
    def of(self, state: DynamicsState) -> Any:
        """The step size of a state, before its schedule."""

    @abc.abstractmethod
    def begin(
        self,
        sampler: "StochasticGradient",
        key: Key,
        target: Target,
        state: DynamicsState,
        batch: Data,
        variance: Array,
        gradient: Array,
    ) -> DynamicsState:
        """Return the initial state with its step size set, given the first gradient and the prior variance."""

    @abc.abstractmethod
    def adapts(self, state: DynamicsState) -> Array:
        """Whether the preconditioner learns from this step's gradient."""

    @abc.abstractmethod
    def stride(
        self, sampler: "StochasticGradient", state: DynamicsState, memory: PyTree, gradient: Array, factor: Any
    ) -> tuple[Metric | None, Tuning | tuple[()], Array]:
        """Metric, tuning state and step size of this step; `factor` is the schedule's."""

    @abc.abstractmethod
    def either(self, state: DynamicsState, plain: Callable[[], Any], corrected: Callable[[], Any]) -> Any:
        """Run `plain` during the descent, else `corrected`."""

    @abc.abstractmethod
    def answer(
        self, sampler: "StochasticGradient", state: DynamicsState, motion: Motion, tuned: Any, acceptance: Array
    ) -> tuple[Motion, Any]:
        """Motion and tuning state after adapting to this step's acceptance."""

    @abc.abstractmethod
    def rescue(
        self, sampler: "StochasticGradient", state: DynamicsState, adapts: Array, log_density: Array
    ) -> tuple[DynamicsState, Array]:
        """State and log density to report; a chain that diverges in warm-up is reset to an earlier state."""

    @abc.abstractmethod
    def rescued(self, state: DynamicsState) -> bool:
        """Whether the chain was ever reset after a divergence."""

    def notes(self, states: list[DynamicsState], pace: str) -> tuple[str, ...]:
        """Sentences on the step sizes of all chains; `pace` describes the schedule."""
        sizes = [float(self.of(state)) for state in states]
        least, most = f"{min(sizes):.3g}", f"{max(sizes):.3g}"
        notes: tuple[str, ...] = (f"Step size {least if least == most else f'{least} to {most}'}, {pace}",)
        if any(self.rescued(state) for state in states):
            notes += ("A chain was lost in warm-up and went on from an earlier place with smaller steps.",)
        return notes

    @abc.abstractmethod
    def meetings(self, warmup: int) -> tuple[int, ...]:
        """Warm-up steps after which the chains meet."""

    @abc.abstractmethod
    def report(self, sampler: "StochasticGradient", state: DynamicsState) -> PyTree:
        """A chain's report for a meeting."""

    @abc.abstractmethod
    def meet(
        self, sampler: "StochasticGradient", key: Key, target: Target, state: DynamicsState, batch: Data, reports: Any
    ) -> DynamicsState:
        """State after a meeting, given the reports of all chains."""


class GivenStep(StepSize):
    """A given step size, the same from the first step on."""

    size: Any

    @property
    def preconditioner(self) -> Preconditioner:
        """The identity, as the step size is in the units of the weights."""
        return Identity()

    def of(self, state: DynamicsState) -> Any:
        """The given size."""
        return self.size

    def begin(
        self,
        sampler: "StochasticGradient",
        key: Key,
        target: Target,
        state: DynamicsState,
        batch: Data,
        variance: Array,
        gradient: Array,
    ) -> DynamicsState:
        """Return the state with the given step size set."""
        size = jnp.asarray(self.size, state.position.dtype)
        return state._replace(motion=state.motion._replace(step_size=size))

    def stride(
        self, sampler: "StochasticGradient", state: DynamicsState, memory: PyTree, gradient: Array, factor: Any
    ) -> tuple[Metric | None, Tuning | tuple[()], Array]:
        """The preconditioner's metric, no tuning state, and the scaled step size."""
        return sampler.metric.metric(memory), (), factor * self.size

    def adapts(self, state: DynamicsState) -> Array:
        """True in warm-up."""
        return state.step < state.warmup

    def either(self, state: DynamicsState, plain: Callable[[], Any], corrected: Callable[[], Any]) -> Any:
        """Always the corrected path."""
        return corrected()

    def answer(
        self, sampler: "StochasticGradient", state: DynamicsState, motion: Motion, tuned: Any, acceptance: Array
    ) -> tuple[Motion, Any]:
        """Return them unchanged."""
        return motion, tuned

    def rescue(
        self, sampler: "StochasticGradient", state: DynamicsState, adapts: Array, log_density: Array
    ) -> tuple[DynamicsState, Array]:
        """Return state and log density unchanged; a diverged chain is an error."""
        return state, log_density

    def rescued(self, state: DynamicsState) -> bool:
        """False: a given step size is never reduced."""
        return False

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """No meetings."""
        return ()

    def report(self, sampler: "StochasticGradient", state: DynamicsState) -> PyTree:
        """An empty report."""
        return ()

    def meet(
        self, sampler: "StochasticGradient", key: Key, target: Target, state: DynamicsState, batch: Data, reports: Any
    ) -> DynamicsState:
        """Return the state unchanged."""
        return state


class Refuge(NamedTuple):
    """What a diverged chain is reset to; the fields are those of `DynamicsState`."""

    position: Array
    metric: PyTree
    anchor: PyTree
    noise: PyTree


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

    def begin(
        self,
        sampler: "StochasticGradient",
        key: Key,
        target: Target,
        state: DynamicsState,
        batch: Data,
        variance: Array,
        gradient: Array,
    ) -> DynamicsState:
        """Return the initial state with a first measurement and the descent's friction."""
        position, friction = state.position, state.motion.friction
        metric = _metric(sampler, state.metric, position)
        measured = tuning.measure(key, target, sampler.gradient, state.anchor, position, batch, metric)
        size = measured.step_size(friction, sampler.schedule.reach)
        refuge = Refuge(position, state.metric, state.anchor, state.noise)
        tuned = tuning.begin(variance, gradient, measured, size, state.warmup, refuge)
        motion = state.motion._replace(
            friction=tuning.friction(friction, state.warmup), step_size=jnp.asarray(size, position.dtype)
        )
        return state._replace(motion=motion, tuning=tuned)

    def adapts(self, state: DynamicsState) -> Array:
        """True in warm-up, once the descent has left its start."""
        return (state.step < state.warmup) & (state.step >= tuning.arrival(state.warmup))

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
        self, sampler: "StochasticGradient", state: DynamicsState, adapts: Array, log_density: Array
    ) -> tuple[DynamicsState, Array]:
        """Reset a diverged chain to its last meeting, at rest, with a smaller step size."""
        lost = adapts & tuning.lost(_tuning(state), state.position, log_density)
        tuned = tuning.slower(_tuning(state))

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
        return next_state, jnp.where(lost, jnp.finfo(log_density.dtype).min, log_density)

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
        pooled = Measured(*(jnp.mean(part, axis=0) for part in reports.measured))
        gathered = sampler.metric.meet(state.metric, reports.gathered)
        memory = jax.tree.map(lambda new, old: jnp.where(last, old, new), gathered, state.metric)
        metric = _metric(sampler, memory, position)
        measured = tuning.measure(key_curvature, target, sampler.gradient, state.anchor, position, batch, metric)
        chosen = jax.tree.map(lambda old, new: jnp.where(last, old, new), pooled, measured)
        caution = jnp.min(reports.caution)
        size = caution * chosen.step_size(sampler.damping, sampler.schedule.reach)
        if sampler.correction is not None:
            size = jnp.where(last, jnp.exp(jnp.mean(reports.log_step)), size)
        size = size.astype(position.dtype)
        refuge = Refuge(position, memory, state.anchor, state.noise)
        tuned = tuned._replace(step_size=size, measured=chosen, left=tuned.left - 1, refuge=refuge, caution=caution)
        noise = shaken(metric, normal(key_momentum, position.shape, position.dtype))
        motion = Motion(position, noise / jnp.sqrt(size), jnp.asarray(sampler.damping, position.dtype), size)
        return state._replace(motion=motion, metric=memory, tuning=tuned)

    def rescued(self, state: DynamicsState) -> bool:
        """Whether the step size was ever reduced after a divergence."""
        return float(_tuning(state).caution) < 1.0


def _tuning(state: DynamicsState) -> Tuning:
    return cast(Tuning, state.tuning)


def _metric(sampler: "StochasticGradient", memory: PyTree, like: Array) -> Metric:
    metric = sampler.metric.metric(memory)
    return Metric(jnp.ones_like(like), jnp.ones_like(like)) if metric is None else metric
