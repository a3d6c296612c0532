"""How a stochastic-gradient sampler has its step size: as a number, or measured in warm-up (`tuning`)."""

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
    """Where a step size comes from. Methods are told the sampler whose steps these are."""

    @property
    @abc.abstractmethod
    def preconditioner(self) -> Preconditioner:
        """The metric, where a sampler was given none."""

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
        """The first state with its step size: at a first gradient, where the prior has this variance."""

    @abc.abstractmethod
    def adapts(self, state: DynamicsState) -> Array:
        """Whether a preconditioner learns from a step."""

    @abc.abstractmethod
    def stride(
        self, sampler: "StochasticGradient", state: DynamicsState, memory: PyTree, gradient: Array, factor: Any
    ) -> tuple[Metric | None, Tuning | tuple[()], Array]:
        """The metric, what warm-up remembers and the step size of a step; the schedule multiplies by a factor."""

    @abc.abstractmethod
    def either(self, state: DynamicsState, plain: Callable[[], Any], corrected: Callable[[], Any]) -> Any:
        """A corrected path, unless a chain still descends."""

    @abc.abstractmethod
    def answer(
        self, sampler: "StochasticGradient", state: DynamicsState, motion: Motion, tuned: Any, acceptance: Array
    ) -> tuple[Motion, Any]:
        """Motion, and what warm-up remembers, after what a step has taught."""

    @abc.abstractmethod
    def rescue(
        self, sampler: "StochasticGradient", state: DynamicsState, adapts: Array, log_density: Array
    ) -> tuple[DynamicsState, Array]:
        """The state, or an earlier one where a chain is lost in warm-up, and the log density to be reported."""

    @abc.abstractmethod
    def rescued(self, state: DynamicsState) -> bool:
        """Whether a chain was ever lost."""

    def notes(self, states: list[DynamicsState], pace: str) -> tuple[str, ...]:
        """Sentences on the step sizes of all chains, which follow a schedule described by `pace`."""
        sizes = [float(self.of(state)) for state in states]
        least, most = f"{min(sizes):.3g}", f"{max(sizes):.3g}"
        notes: tuple[str, ...] = (f"Step size {least if least == most else f'{least} to {most}'}, {pace}",)
        if any(self.rescued(state) for state in states):
            notes += ("A chain was lost in warm-up and went on from an earlier place with smaller steps.",)
        return notes

    @abc.abstractmethod
    def meetings(self, warmup: int) -> tuple[int, ...]:
        """Steps of warm-up after which chains meet."""

    @abc.abstractmethod
    def report(self, sampler: "StochasticGradient", state: DynamicsState) -> PyTree:
        """What a chain tells the others there."""

    @abc.abstractmethod
    def meet(
        self, sampler: "StochasticGradient", key: Key, target: Target, state: DynamicsState, batch: Data, reports: Any
    ) -> DynamicsState:
        """The state after a meeting."""


class GivenStep(StepSize):
    """A number, the same from the first step on."""

    size: Any

    @property
    def preconditioner(self) -> Preconditioner:
        """None: the number is in the units of the weights."""
        return Identity()

    def of(self, state: DynamicsState) -> Any:
        """As told."""
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
        """As told."""
        size = jnp.asarray(self.size, state.position.dtype)
        return state._replace(motion=state.motion._replace(step_size=size))

    def stride(
        self, sampler: "StochasticGradient", state: DynamicsState, memory: PyTree, gradient: Array, factor: Any
    ) -> tuple[Metric | None, Tuning | tuple[()], Array]:
        """As told."""
        return sampler.metric.metric(memory), (), factor * self.size

    def adapts(self, state: DynamicsState) -> Array:
        """In warm-up."""
        return state.step < state.warmup

    def either(self, state: DynamicsState, plain: Callable[[], Any], corrected: Callable[[], Any]) -> Any:
        """A corrected path."""
        return corrected()

    def answer(
        self, sampler: "StochasticGradient", state: DynamicsState, motion: Motion, tuned: Any, acceptance: Array
    ) -> tuple[Motion, Any]:
        """As they are."""
        return motion, tuned

    def rescue(
        self, sampler: "StochasticGradient", state: DynamicsState, adapts: Array, log_density: Array
    ) -> tuple[DynamicsState, Array]:
        """As they are: a chain that is lost is an error."""
        return state, log_density

    def rescued(self, state: DynamicsState) -> bool:
        """Never."""
        return False

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """None."""
        return ()

    def report(self, sampler: "StochasticGradient", state: DynamicsState) -> PyTree:
        """Nothing."""
        return ()

    def meet(
        self, sampler: "StochasticGradient", key: Key, target: Target, state: DynamicsState, batch: Data, reports: Any
    ) -> DynamicsState:
        """As it is."""
        return state


class Refuge(NamedTuple):
    """What a chain takes up again that was lost: see `DynamicsState`."""

    position: Array
    metric: PyTree
    anchor: PyTree
    noise: PyTree


class Report(NamedTuple):
    """What a chain tells the others."""

    measured: Measured
    log_step: Array
    caution: Array
    gathered: PyTree


class MeasuredStep(StepSize):
    """The largest step that curvature and the gradient's noise allow, found in warm-up."""

    @property
    def preconditioner(self) -> Preconditioner:
        """From the gradients that warm-up meets."""
        return Fisher()

    def of(self, state: DynamicsState) -> Any:
        """As found."""
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
        """A first measurement, and the friction of a descent."""
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
        """In warm-up; what the descent comes by at first says nothing of the posterior."""
        return (state.step < state.warmup) & (state.step >= tuning.arrival(state.warmup))

    def stride(
        self, sampler: "StochasticGradient", state: DynamicsState, memory: PyTree, gradient: Array, factor: Any
    ) -> tuple[Metric | None, Tuning | tuple[()], Array]:
        """Those of the descent while it lasts, then those that were found."""
        tuned, sampling_metric, dtype = _tuning(state), _metric(sampler, memory, gradient), gradient.dtype
        size = factor * tuned.step_size

        def descend() -> tuple[Metric, Tuning, Array]:
            follows, metric = tuning.descent(tuned, gradient)
            return metric, follows, tuning.stride(state.motion.friction, state.step, state.warmup).astype(dtype)

        return jax.lax.cond(tuned.descends, descend, lambda: (sampling_metric, tuned, size.astype(dtype)))

    def either(self, state: DynamicsState, plain: Callable[[], Any], corrected: Callable[[], Any]) -> Any:
        """Steps without correction in the descent."""
        return jax.lax.cond(_tuning(state).descends, plain, corrected)

    def answer(
        self, sampler: "StochasticGradient", state: DynamicsState, motion: Motion, tuned: Any, acceptance: Array
    ) -> tuple[Motion, Any]:
        """Friction that does not answer the descent's heat, a step size that answers acceptance."""
        motion = motion._replace(friction=jnp.where(tuned.descends, state.motion.friction, motion.friction))
        return motion, tuned if sampler.correction is None else tuning.answer(tuned, acceptance)

    def rescue(
        self, sampler: "StochasticGradient", state: DynamicsState, adapts: Array, log_density: Array
    ) -> tuple[DynamicsState, Array]:
        """Back where it last met the others, with what it remembered there, at rest and with smaller steps."""
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
        """When chains agree on a metric and a step size."""
        return tuning.meetings(warmup)

    def report(self, sampler: "StochasticGradient", state: DynamicsState) -> Report:
        """What was measured at the last meeting, and what the preconditioner gathered since."""
        tuned = _tuning(state)
        return Report(tuned.measured, jnp.log(tuned.step_size), tuned.caution, sampler.metric.report(state.metric))

    def meet(
        self, sampler: "StochasticGradient", key: Key, target: Target, state: DynamicsState, batch: Data, reports: Any
    ) -> DynamicsState:
        """A metric from all chains; at the last meeting one step size for all."""
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
        """Whether caution had to grow."""
        return float(_tuning(state).caution) < 1.0


def _tuning(state: DynamicsState) -> Tuning:
    return cast(Tuning, state.tuning)


def _metric(sampler: "StochasticGradient", memory: PyTree, like: Array) -> Metric:
    metric = sampler.metric.metric(memory)
    return Metric(jnp.ones_like(like), jnp.ones_like(like)) if metric is None else metric
