"""The common part of stochastic-gradient samplers: their fields, checks, what warm-up needs, and what a fit returns."""

import abc
import dataclasses
import warnings
from typing import Any, Self

import equinox as eqx
import jax
import numpy as np
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import ConvergenceWarning, InputError
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.base import Iterative
from tunbridge.inference.chains import Chains
from tunbridge.inference.recorded import Recorded
from tunbridge.inference.sampler import Info, check_kept, joined, kept, shapes
from tunbridge.inference.sgmcmc import dynamics, epochs, temperature, tuning
from tunbridge.inference.sgmcmc.corrections import Correction
from tunbridge.inference.sgmcmc.measured import MeasuredStep
from tunbridge.inference.sgmcmc.moves import Move, redrawn
from tunbridge.inference.sgmcmc.noise import GradientNoise, Ignored
from tunbridge.inference.sgmcmc.preconditioners import Preconditioner
from tunbridge.inference.sgmcmc.splittings import Splitting
from tunbridge.inference.sgmcmc.state import DynamicsState
from tunbridge.inference.sgmcmc.steps import GivenStep, StepSize
from tunbridge.inference.sgmcmc.subsampling import SVRG, Estimator, Plain
from tunbridge.model.model import Model, Target
from tunbridge.runtime.durations import BATCH, Run
from tunbridge.runtime.loop import Options, Trace
from tunbridge.runtime.schedules import Constant, Pacing

_BIASED = ": what its steps get wrong stays as a bias."


class StochasticGradient(Iterative):
    """A sampler whose step uses one minibatch. Subclasses choose the dynamics; the fields are described there."""

    step_size: float | None = None
    schedule: Pacing = eqx.field(default=Constant(), kw_only=True)
    preconditioner: Preconditioner | None = eqx.field(default=None, kw_only=True)
    gradient: Estimator = eqx.field(default=Plain(), kw_only=True)
    correction: Correction | None = eqx.field(default=None, kw_only=True)
    moves: tuple[Move, ...] = eqx.field(default=(), converter=tuple, kw_only=True)
    noise: float = eqx.field(default=1.0, converter=float, kw_only=True)
    run: Run = eqx.field(default=Run(warmup=10_000, draws=500, thin=50), kw_only=True)
    independence: Any = eqx.field(default=None, kw_only=True)
    """Set by `fit`: an `epochs.Cancellation`."""

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
        """How a step is split into drift, friction and noise."""

    @property
    @abc.abstractmethod
    def damping(self) -> Any:
        """The initial friction, from 0 to 1."""

    @property
    def gradient_noise(self) -> GradientNoise:
        """The estimate of the minibatch noise, which is subtracted from the injected noise."""
        return Ignored()

    @property
    def steps(self) -> StepSize:
        """The source of the step size, given or measured in warm-up."""
        return MeasuredStep() if self.step_size is None else GivenStep(self.step_size)

    @property
    def metric(self) -> Preconditioner:
        """The preconditioner in use, the one given or else the default of the step size."""
        return self.steps.preconditioner if self.preconditioner is None else self.preconditioner

    @property
    def cancellation(self) -> epochs.Cancellation:
        """What an epoch's cancelling leaves of the gradient's noise; all of it outside of `fit`."""
        return epochs.Cancellation() if self.independence is None else self.independence

    @property
    def gradients_per_step(self) -> int | None:
        """One gradient per step."""
        return 1

    @property
    def duration(self) -> Run:
        """The chains, warm-up and draws of a run."""
        return self.run

    def within(self, gradients: int, rows: int) -> Self:
        """The same method with chains that share a budget of gradients, in batches of at most 128 rows."""
        run = self.run.within(gradients, min(rows, BATCH), 1)
        return dataclasses.replace(self, run=dataclasses.replace(run, batch_size=min(rows, BATCH)))

    def batch_size(self, num: int) -> int | None:
        """The batch size: `run.batch_size`, else at most 128 rows."""
        return min(num, BATCH) if self.run.batch_size is None else self.run.batch_size

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """InputError if a part cannot handle the model or the batches."""
        check_kept(self.run, model)
        self.metric.check(shapes(model))
        for move in self.moves:
            move.check(model)
        self.gradient_noise.check(self._rows(data))

    def settle(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> tuple[Self, Options]:
        """The same method with parts that know the number of rows, and a gradient estimator that has seen them all."""
        epoch = -(-data.num // self._rows(data))
        settled = dataclasses.replace(
            self,
            schedule=self.schedule.settled(self.run.thin),
            gradient=self.gradient.settled(model, data, epoch, key, options),
            correction=None if self.correction is None else self.correction.settled(data),
            independence=epochs.cancellation(float(self.damping), epoch, tuning.STIFFNESS),
        )
        return settled, options

    def _rows(self, data: Data | Stream) -> int:
        """The number of rows in a batch."""
        if isinstance(data, Stream):
            return data.first.num
        return min(self.batch_size(data.num) or data.num, data.num)

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> DynamicsState:
        """The first state; see `dynamics.begin`."""
        return dynamics.begin(self, key, target, params, batch, warmup)

    def step(self, key: Key, target: Target, state: DynamicsState, batch: Data) -> tuple[DynamicsState, Info]:
        """One step; see `dynamics.step`."""
        return dynamics.step(self, key, target, state, batch)

    @property
    def periods(self) -> tuple[int, ...]:
        """The periods of the moves."""
        return tuple(int(move.every) for move in self.moves)

    def pause(self, key: Key, target: Target, state: DynamicsState, step: Array) -> DynamicsState:
        """Apply the moves that are due at this step."""
        position = redrawn(self.moves, jax.random.fold_in(key, 1), target, state.position, step)
        return state._replace(motion=state.motion._replace(position=position))

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """The warm-up steps after which chains agree on a metric and a step size."""
        return self.steps.meetings(warmup)

    def report(self, state: DynamicsState) -> PyTree:
        """What a chain contributes to a meeting."""
        return self.steps.report(self, state)

    def meet(self, key: Key, target: Target, state: DynamicsState, batch: Data, reports: PyTree) -> DynamicsState:
        """The state after a meeting."""
        return self.steps.meet(self, key, target, state, batch, reports)

    def facts(self, target: Target, state: DynamicsState) -> dict[str, float]:
        """The lowest and highest kinetic temperature over arrays of unknowns, for the progress bar."""
        return temperature.extremes(target.model, state.heat)

    def keep(self, target: Target, state: DynamicsState) -> PyTree:
        """The position or the outputs, and the temperature of each array of unknowns."""
        return kept(self.run, target, state.position), temperature.of_arrays(target.model, state.heat)

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Chains | Recorded:
        """The draws of all chains, without those of exploration phases, with the kinetic temperatures at each."""
        num = min(len(trace.kept[1]) for trace in traces)
        chosen = np.flatnonzero(self.schedule.samples((1 + np.arange(num)) * self.run.thin - 1))
        selected = [jax.tree.map(lambda leaf: leaf[chosen], (trace.kept, trace.info)) for trace in traces]
        sampled = [
            trace._replace(kept=part[0], info=info) for trace, (part, info) in zip(traces, selected, strict=True)
        ]
        if doubts := self.steps.doubts([trace.state for trace in traces], self.run.warmup):
            warnings.warn(" ".join(doubts), ConvergenceWarning, stacklevel=4)
        chains = joined(self.run, model, data, sampled, key, self.notes(traces))
        warmth = temperature.stats(model, np.stack([np.asarray(part[1]) for part, _ in selected]))
        return dataclasses.replace(chains, stats={**chains.stats, **warmth})

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """Sentences on the step size, its bias, and chains that were restarted in warm-up."""
        exact = self.correction.exact if self.correction is not None else self.schedule.asymptotically_exact
        exact = exact and self.noise == 1.0 and self.metric.settles
        pace = f"{type(self.schedule).__name__.lower()}; {'' if exact else 'not '}asymptotically exact"
        return self.steps.notes([trace.state for trace in traces], pace + ("." if exact else _BIASED))
