"""What stochastic-gradient samplers share: a gradient from a batch, noise, and what is plugged in between."""

import abc
import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError, Result
from tunbridge.core.random import normal
from tunbridge.core.tree import ravel
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference import scales
from tunbridge.inference.base import Iterative
from tunbridge.inference.chains import Chains
from tunbridge.inference.recorded import Recorded
from tunbridge.inference.sampler import Info, Sampler, shapes
from tunbridge.inference.sgmcmc import temperature, tuning
from tunbridge.inference.sgmcmc.corrections import Correction, Proposal
from tunbridge.inference.sgmcmc.moves import Move, redrawn
from tunbridge.inference.sgmcmc.noise import GradientNoise, Ignored
from tunbridge.inference.sgmcmc.preconditioners import Identity, Preconditioner, shaken, times
from tunbridge.inference.sgmcmc.splittings import Motion, Push, Splitting
from tunbridge.inference.sgmcmc.state import DynamicsState
from tunbridge.inference.sgmcmc.steps import GivenStep, MeasuredStep, StepSize
from tunbridge.inference.sgmcmc.subsampling import SVRG, Estimator, Plain, Slope
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import BATCH, Options, Run, Trace
from tunbridge.runtime.schedules import Constant, Pacing


class StochasticGradient(Sampler):
    """A sampler whose step costs a batch. A subclass says which motion it follows; the fields are described there."""

    step_size: float | None = None
    schedule: Pacing = eqx.field(default=Constant(), kw_only=True)
    preconditioner: Preconditioner | None = eqx.field(default=None, kw_only=True)
    gradient: Estimator = eqx.field(default=Plain(), kw_only=True)
    correction: Correction | None = eqx.field(default=None, kw_only=True)
    moves: tuple[Move, ...] = eqx.field(default=(), converter=tuple, kw_only=True)
    noise: float = eqx.field(default=1.0, converter=float, kw_only=True)
    run: Run = eqx.field(default=Run(warmup=10_000, draws=500, thin=50), kw_only=True)
    independence: float = eqx.field(default=1.0, converter=float, kw_only=True)
    """Found by `fit`: see `tuning.independence`."""

    def __check_init__(self):
        if self.step_size is not None and not self.step_size > 0:
            raise InputError("a step size above 0", f"{self.step_size}", "Leave it out to have it measured.")
        if not self.noise >= 0:
            raise InputError("noise of at least 0", f"{self.noise}", "Leave it at 1 to sample the posterior.")
        if self.correction is not None and isinstance(self.gradient, SVRG):
            raise InputError("an anchor that stays, beside correction=", "SVRG", "Use tb.subsampling.ControlVariate().")

    @property
    @abc.abstractmethod
    def splitting(self) -> Splitting:
        """How a step is put together."""

    @property
    @abc.abstractmethod
    def damping(self) -> Any:
        """The friction it begins with, from 0 to 1."""

    @property
    def gradient_noise(self) -> GradientNoise:
        """What is known of the gradient's noise, to be taken off the injected noise."""
        return Ignored()

    @property
    def steps(self) -> StepSize:
        """Where the step size comes from."""
        return MeasuredStep() if self.step_size is None else GivenStep(self.step_size)

    @property
    def found(self) -> Preconditioner:
        """The preconditioner as told, or that of the step size."""
        return self.steps.preconditioner if self.preconditioner is None else self.preconditioner

    @property
    def gradients_per_step(self) -> int | None:
        """One."""
        return 1

    @property
    def subsamples(self) -> bool:
        """Yes."""
        return True

    def within(self, gradients: int, rows: int) -> Self:
        """Chains share them, in batches of at most 128 rows."""
        run = self.run.within(gradients, min(rows, BATCH), 1)
        return dataclasses.replace(self, run=dataclasses.replace(run, batch_size=min(rows, BATCH)))

    def batch_size(self, num: int) -> int | None:
        """At most 128 of the rows unless told."""
        return min(num, BATCH) if self.run.batch_size is None else self.run.batch_size

    def start(self, key: Key, target: Target, batch: Data) -> Params:
        """The network's own initial weights, all else at its prior's median."""
        return Iterative.start(self, key, target, batch)

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """Parts that cannot take the model or the batches."""
        super().check(model, data, options)
        self.found.check(shapes(model))
        for move in self.moves:
            move.check(model)
        self.gradient_noise.check(self._rows(data))

    def settle(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> tuple[Self, Options]:
        """With parts that know the number of rows, and an estimator that has seen them."""
        epoch = -(-data.num // self._rows(data))
        settled = dataclasses.replace(
            self,
            schedule=self.schedule.settled(self.run.thin),
            gradient=self.gradient.settled(model, data, epoch, key, options),
            correction=None if self.correction is None else self.correction.settled(data),
            independence=tuning.independence(float(self.damping), epoch),
        )
        return settled, options

    def _rows(self, data: Data | Stream) -> int:
        """The rows of a batch."""
        if isinstance(data, Stream):
            return data.first.num
        return min(self.batch_size(data.num) or data.num, data.num)

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> DynamicsState:
        """Momentum at rest; a first measurement where the step size is to be found."""
        key_prior, key_curvature = jax.random.split(key)
        position = ravel(params)
        zeros, ones, none = jnp.zeros_like(position), jnp.ones_like(position), jnp.zeros((), jnp.int32)
        anchor = self.gradient.begin(target, position)
        gradient = self.gradient.slope(target, anchor, position, batch).gradient
        variance = ones
        if self.step_size is None or not isinstance(self.found, Identity):
            variance = scales.prior_variance(key_prior, target, batch)
        memory = self.found.begin(shapes(target.model), gradient, variance)
        motion = Motion(position, zeros, jnp.asarray(self.damping, position.dtype), ones[0])
        noise = self.gradient_noise.begin(position)
        state = DynamicsState(motion, memory, anchor, (), noise, ones, none, jnp.asarray(warmup, jnp.int32))
        return self.steps.begin(self, key_curvature, target, state, batch, variance, gradient)

    def step(self, key: Key, target: Target, state: DynamicsState, batch: Data) -> tuple[DynamicsState, Info]:
        """A gradient, and a step along it with noise."""
        anchor = self.gradient.follow(target, state.anchor, state.position, state.step)
        slope, noise = self.gradient_noise.estimate(self.gradient, target, anchor, state, batch)
        adapts = self.steps.adapts(state)
        memory = self.found.follow(state.metric, slope.gradient, adapts)
        pace = self.schedule.at(jnp.maximum(state.step - state.warmup, 0))
        metric, tuned, step_size = self.steps.stride(self, state, memory, slope.gradient, pace.step)
        shake = shaken(metric, normal(key, state.position.shape, state.position.dtype))
        brought = self.gradient_noise.brought(noise, step_size, metric, self.independence)
        wanted = jnp.maximum(2.0 * self.damping - brought, 0.0)
        push = Push(slope.gradient, step_size, metric, (self.noise * pace.noise) * shake, wanted)
        motion, log_density, acceptance = self._advance(key, target, state, batch, push, slope)
        motion, tuned = self.steps.answer(self, state, motion, tuned, acceptance)
        energy = motion.step_size * motion.momentum * times(metric, motion.momentum)
        unit = 1.0 if self.correction else self.splitting.unit(motion.friction)
        heat = temperature.follow(state.heat, energy / unit)
        fresh = DynamicsState(motion, memory, anchor, tuned, noise, heat, state.step + 1, state.warmup)
        fresh, log_density = self.steps.rescue(self, fresh, adapts, log_density)
        price = batch.num / target.num if self.correction is None else self.correction.price(target, batch)
        nan, false = jnp.full_like(log_density, jnp.nan), jnp.asarray(False)
        return fresh, Info.of(log_density, acceptance, false, nan, price, Result.DIVERGED)

    def _advance(
        self, key: Key, target: Target, state: DynamicsState, batch: Data, push: Push, slope: Slope
    ) -> Proposal:
        """A step, or a corrected path."""

        def plain() -> Proposal:
            nan = jnp.full_like(slope.log_density, jnp.nan)
            return Proposal(self.splitting.advance(state.motion, push), slope.log_density, nan)

        def corrected() -> Proposal:
            assert self.correction is not None
            size, metric = push.step_size, push.metric
            return self.correction.propose(key, target, self.gradient, state.motion, batch, size, metric)

        return plain() if self.correction is None else self.steps.either(state, plain, corrected)

    @property
    def periods(self) -> tuple[int, ...]:
        """Those of the moves."""
        return tuple(int(move.every) for move in self.moves)

    def pause(self, key: Key, target: Target, state: DynamicsState, step: Array) -> DynamicsState:
        """The moves whose turn it is."""
        position = redrawn(self.moves, jax.random.fold_in(key, 1), target, state.position, step)
        return state._replace(motion=state.motion._replace(position=position))

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """When chains agree on a metric and a step size."""
        return self.steps.meetings(warmup)

    def report(self, state: DynamicsState) -> PyTree:
        """What a chain tells the others."""
        return self.steps.report(self, state)

    def meet(self, key: Key, target: Target, state: DynamicsState, batch: Data, reports: PyTree) -> DynamicsState:
        """The state after a meeting."""
        return self.steps.meet(self, key, target, state, batch, reports)

    def facts(self, target: Target, state: DynamicsState) -> dict[str, float]:
        """The coldest and the hottest array of unknowns, for the progress bar."""
        return temperature.extremes(target.model, state.heat)

    def keep(self, target: Target, state: DynamicsState) -> PyTree:
        """The position or the outputs, and the temperature of each array of unknowns."""
        return super().keep(target, state), temperature.of_arrays(target.model, state.heat)

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Chains | Recorded:
        """The draws of all chains but those of an exploration, with the temperatures at each."""
        num = min(len(trace.kept[1]) for trace in traces)
        chosen = np.flatnonzero(self.schedule.samples((1 + np.arange(num)) * self.run.thin - 1))
        some = [jax.tree.map(lambda leaf: leaf[chosen], (trace.kept, trace.info)) for trace in traces]
        kept = [trace._replace(kept=part[0], info=info) for trace, (part, info) in zip(traces, some, strict=True)]
        found = super().posterior(model, data, kept, key)
        warmth = temperature.stats(model, np.stack([np.asarray(part[1]) for part, _ in some]))
        return dataclasses.replace(found, stats={**found.stats, **warmth})

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """The step size, and what it does."""
        states = [trace.state for trace in traces]
        sizes = [float(self.steps.of(state)) for state in states]
        least, most = f"{min(sizes):.3g}", f"{max(sizes):.3g}"
        shown = least if least == most else f"{least} to {most}"
        exact = self.correction.exact if self.correction is not None else self.schedule.asymptotically_exact
        exact = exact and self.noise == 1.0 and self.found.settles
        said = (
            "asymptotically exact." if exact else "not asymptotically exact: what its steps get wrong stays as a bias."
        )
        notes: tuple[str, ...] = (f"Step size {shown}, {type(self.schedule).__name__.lower()}; {said}",)
        if any(self.steps.rescued(state) for state in states):
            notes += ("A chain was lost in warm-up and went on from an earlier place with smaller steps.",)
        return notes
