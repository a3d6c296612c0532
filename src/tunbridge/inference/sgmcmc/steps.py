"""Where the step size of a stochastic-gradient sampler comes from: given here, or measured in warm-up (`measured`)."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.declared import Module
from tunbridge.core.types import Key, PyTree
from tunbridge.inference.sgmcmc.preconditioners import Identity, Metric, Preconditioner
from tunbridge.inference.sgmcmc.splittings import Motion
from tunbridge.inference.sgmcmc.state import DynamicsState
from tunbridge.inference.sgmcmc.tuning import Tuning
from tunbridge.model.model import Target

if TYPE_CHECKING:
    from tunbridge.inference.sgmcmc.sampler import StochasticGradient


class FirstStep(NamedTuple):
    """What is known before a chain's first step."""

    key: Key
    target: Target
    batch: Data
    variance: Array
    """The prior variance of each unknown."""
    gradient: Array


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
    def begin(self, sampler: "StochasticGradient", state: DynamicsState, first: FirstStep) -> DynamicsState:
        """Return the initial state with its step size set, given what is known at the first step."""

    @abc.abstractmethod
    def adapts(self, state: DynamicsState) -> Array:
        """Whether the preconditioner learns from this step's gradient."""

    @abc.abstractmethod
    def damping(self, sampler: "StochasticGradient", state: DynamicsState) -> Any:
        """The friction whose loss of energy the injected noise makes up for."""

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
        self, sampler: "StochasticGradient", state: DynamicsState, log_density: Array
    ) -> tuple[DynamicsState, Array]:
        """State and log density to report; a chain that is lost is reset to an earlier state."""

    @abc.abstractmethod
    def rescued(self, state: DynamicsState) -> bool:
        """Whether the chain was ever reset after a divergence."""

    def late(self, state: DynamicsState) -> int:
        """Number of times that the chain was reset after warm-up."""
        return 0

    def notes(self, states: list[DynamicsState], pace: str) -> tuple[str, ...]:
        """Sentences on the step sizes of all chains; `pace` describes the schedule."""
        sizes = [float(self.of(state)) for state in states]
        least, most = f"{min(sizes):.3g}", f"{max(sizes):.3g}"
        notes: tuple[str, ...] = (f"Step size {least if least == most else f'{least} to {most}'}, {pace}",)
        if any(self.rescued(state) for state in states):
            notes += ("A chain was lost and went on from an earlier place with smaller steps.",)
        return notes

    def doubts(self, states: list[DynamicsState], warmup: int) -> list[str]:
        """A sentence on chains that were lost after warm-up, with the number and the next step; [] if none was."""
        late = {chain: self.late(state) for chain, state in enumerate(states) if self.late(state)}
        if not late:
            return []
        chains, least = ", ".join(map(str, late)), min(float(self.of(states[chain])) for chain in late)
        return [
            f"Chains {chains} diverged {sum(late.values())} times after warm-up and went on from its "
            f"end with steps down to {least:.3g}: run a longer warm-up (warmup={2 * warmup}), or standardise x and y."
        ]

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

    def begin(self, sampler: "StochasticGradient", state: DynamicsState, first: FirstStep) -> DynamicsState:
        """Return the state with the given step size set."""
        size = jnp.asarray(self.size, state.position.dtype)
        return state._replace(motion=state.motion._replace(step_size=size))

    def damping(self, sampler: "StochasticGradient", state: DynamicsState) -> Any:
        """The sampler's own."""
        return sampler.damping

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
        self, sampler: "StochasticGradient", state: DynamicsState, log_density: Array
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
