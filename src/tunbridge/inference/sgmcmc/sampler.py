"""What stochastic-gradient samplers share: a gradient from a batch, noise, and what is plugged in between."""

import abc
import dataclasses
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core import keys
from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError, Result
from tunbridge.core.random import normal
from tunbridge.core.tree import ravel, unravel
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference import scales
from tunbridge.inference.base import Iterative, check_door
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.sampler import Info, shapes
from tunbridge.inference.sgmcmc import tuning
from tunbridge.inference.sgmcmc.corrections import Correction
from tunbridge.inference.sgmcmc.moves import Move
from tunbridge.inference.sgmcmc.preconditioners import Fisher, Identity, Metric, Preconditioner, shaken, times
from tunbridge.inference.sgmcmc.splittings import Motion, Push, Splitting
from tunbridge.inference.sgmcmc.subsampling import SVRG, Estimator, Plain, Slope
from tunbridge.inference.sgmcmc.temperature import Thermometer
from tunbridge.inference.sgmcmc.tuning import Measured, Tuning
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import BATCH, Options, Run, Trace
from tunbridge.runtime.schedules import Constant, Pacing

_MEMORY = 0.99
"""Of the running mean of kinetic energies."""
_NOISE_MEMORY = 0.999
"""Of the running mean of the gradient's variance."""


class State(NamedTuple):
    """What the next step needs."""

    motion: Motion
    metric: PyTree
    """What the preconditioner remembers."""
    anchor: PyTree
    """What the gradient's estimator remembers."""
    tuning: Tuning | tuple[()]
    noise: PyTree
    """The variance of the gradient, where it is measured, else ()."""
    heat: Array
    """A running mean of each unknown's kinetic energy, 1 in equilibrium."""
    step: Array
    warmup: Array

    @property
    def position(self) -> Array:
        """Everything unknown."""
        return self.motion.position


class Refuge(NamedTuple):
    """What a chain takes up again that was lost: see `State`."""

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


class StochasticGradient(Thermometer):
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
        for name, kind in (
            ("schedule", Pacing),
            ("preconditioner", Preconditioner | None),
            ("gradient", Estimator),
            ("correction", Correction | None),
        ):
            if not isinstance(part := getattr(self, name), kind):
                raise InputError(f"{name}= from its room", repr(part)[:60], f"See tb.{_ROOMS[name]}.")
        if self.correction is not None and isinstance(self.gradient, SVRG):
            raise InputError("an anchor that stays, beside correction=", "SVRG", "Use tb.subsampling.ControlVariate().")
        if not all(isinstance(move, Move) for move in self.moves):
            raise InputError("moves= from tb.moves", repr(self.moves)[:60], "Write moves=(tb.moves.NormRedraw(),).")

    @property
    @abc.abstractmethod
    def splitting(self) -> Splitting:
        """How a step is put together."""

    @property
    @abc.abstractmethod
    def damping(self) -> Any:
        """The friction it begins with, from 0 to 1."""

    @property
    def known_noise(self) -> float | None:
        """The variance of the gradient's noise that is taken off the injected noise; None has it measured."""
        return 0.0

    @property
    def gradients_per_step(self) -> int | None:
        """One."""
        return 1

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

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """Settle what depends on the model and on all rows, then all chains."""
        check_door(model)
        if isinstance(data, Stream):
            bound, rows = model.bind(data.first)
            num = rows.num
        else:
            bound, data = model.bind(data)
            num = min(self.batch_size(data.num) or data.num, data.num)
        self._check(bound, num)
        key_settle = keys.fold_in(key, 3)
        epoch = -(-data.num // num)
        settled = dataclasses.replace(
            self,
            schedule=self.schedule.settled(self.run.thin),
            gradient=self.gradient.settled(bound, data, epoch, key_settle, options),
            correction=None if self.correction is None else self.correction.settled(data),
            independence=tuning.independence(float(self.damping), epoch),
        )
        return super(StochasticGradient, settled).posteriors(model, data, key, size, options)

    def _check(self, model: Model, num: int) -> None:
        if self.preconditioner is not None:
            self.preconditioner.check(shapes(model))
        for move in self.moves:
            move.check(model)
        if self.known_noise is None and (num % 2 or num < 2):
            raise InputError(
                "an even number of rows a batch, whose halves tell the noise of its gradient",
                f"{num}",
                "Change batch_size=, or give noise_estimate a number.",
            )

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> State:
        """Momentum at rest; a first measurement where the step size is to be found."""
        key_prior, key_curvature = jax.random.split(key)
        like, position = shapes(target.model), ravel(params)
        anchor = self.gradient.begin(target, position)
        slope = self.gradient.slope(target, anchor, position, batch).gradient
        variance = jnp.ones_like(position)
        if not isinstance(self._found, Identity) or self._tunes:
            variance = scales.prior_variance(key_prior, target, batch)
        memory = self._found.begin(like, slope, variance)
        friction = jnp.asarray(self.damping, position.dtype)
        noise = jnp.zeros_like(position) if self.known_noise is None else ()
        tuned: Tuning | tuple[()] = ()
        step_size: Any = self.step_size
        if self._tunes:
            metric = self._metric(memory, position)
            measured = tuning.measure(key_curvature, target, self.gradient, anchor, position, batch, metric)
            step_size = measured.step_size(friction, self.schedule.reach)
            refuge = Refuge(position, memory, anchor, noise)
            tuned = tuning.begin(variance, slope, measured, step_size, warmup, refuge)
            friction = tuning.friction(friction, warmup)
        motion = Motion(position, jnp.zeros_like(position), friction, jnp.asarray(step_size, position.dtype))
        zero = jnp.zeros((), jnp.int32)
        return State(
            motion, memory, anchor, tuned, noise, jnp.ones_like(position), zero, jnp.asarray(warmup, jnp.int32)
        )

    @property
    def _tunes(self) -> bool:
        return self.step_size is None

    @property
    def _found(self) -> Preconditioner:
        if self.preconditioner is not None:
            return self.preconditioner
        return Fisher() if self._tunes else Identity()

    def _size(self, tuned: Tuning | tuple[()]) -> Any:
        """The step size that was given or found."""
        return tuned.step_size if tuned else self.step_size

    def _metric(self, memory: PyTree, position: Array) -> Metric:
        found = self._found.metric(memory)
        return Metric(jnp.ones_like(position), jnp.ones_like(position)) if found is None else found

    def step(self, key: Key, target: Target, state: State, batch: Data) -> tuple[State, Info]:
        """A gradient, and a step along it with noise."""
        anchor = self.gradient.follow(target, state.anchor, state.position, state.step)
        slope, noise = self._estimate(target, anchor, state, batch)
        adapts = state.step < state.warmup
        if state.tuning:  # what the descent comes by at first says nothing of the posterior
            adapts &= state.step >= tuning.arrival(state.warmup)
        memory = self._found.follow(state.metric, slope.gradient, adapts)
        pace = self.schedule.at(jnp.maximum(state.step - state.warmup, 0))
        metric, tuned, step_size = self._found.metric(memory), state.tuning, pace.step * self._size(state.tuning)
        if tuned:
            metric, tuned, step_size = self._descending(state, memory, slope.gradient, step_size)
        shake = shaken(metric, normal(key, state.position.shape, state.position.dtype))
        shake = (self.noise * pace.noise) * shake
        push = Push(slope.gradient, step_size, metric, shake, self._wanted(noise, step_size, metric))
        motion, log_density, acceptance = self._advance(key, target, state, batch, push, slope)
        if tuned:
            motion, tuned = self._taught(state, motion, tuned, acceptance)
        energy = motion.step_size * motion.momentum * times(metric, motion.momentum)
        unit = 1.0 if self.correction else self.splitting.unit(motion.friction)
        heat = state.heat + (1.0 - _MEMORY) * (energy / unit - state.heat)
        fresh = State(motion, memory, anchor, tuned, noise, heat, state.step + 1, state.warmup)
        if tuned:
            lost = adapts & tuning.lost(tuned, motion.position, log_density)
            fresh = self._rescued(fresh, lost)
            log_density = jnp.where(lost, jnp.finfo(log_density.dtype).min, log_density)
        nan, false = jnp.full_like(log_density, jnp.nan), jnp.asarray(False)
        info = Info.of(log_density, acceptance, false, nan, self._price(target, batch), Result.DIVERGED)
        return fresh, info

    def _rescued(self, state: State, lost: Array) -> State:
        """Back where it last met the others, with what it remembered there, at rest and with smaller steps."""
        assert state.tuning
        tuned = tuning.slower(state.tuning)

        def back() -> State:
            refuge: Refuge = tuned.refuge
            friction = jnp.asarray(self.damping, state.motion.friction.dtype)
            motion = Motion(refuge.position, jnp.zeros_like(refuge.position), friction, tuned.step_size)
            heat = jnp.ones_like(state.heat)
            return State(motion, refuge.metric, refuge.anchor, tuned, refuge.noise, heat, state.step, state.warmup)

        return jax.lax.cond(lost, back, lambda: state)

    def _estimate(self, target: Target, anchor: PyTree, state: State, batch: Data) -> tuple[Slope, PyTree]:
        """The gradient, and its variance where that is measured."""
        if self.known_noise is not None:
            return self.gradient.slope(target, anchor, state.position, batch), state.noise
        halves = tuning.halves(target, self.gradient, anchor, state.position, batch)
        fresh = tuning.variance(halves, target, batch)
        memory = jnp.maximum(1.0 - _NOISE_MEMORY, 1.0 / (state.step + 1.0))
        return Slope(*(jnp.mean(part, axis=0) for part in halves)), state.noise + memory * (fresh - state.noise)

    def _descending(self, state: State, memory: PyTree, slope: Array, step_size: Array) -> tuple[Metric, Tuning, Array]:
        """The metric and the step size of the descent while it lasts, then those that were found."""
        assert state.tuning
        tuned, found = state.tuning, self._metric(memory, slope)

        def descend() -> tuple[Metric, Tuning, Array]:
            follows, metric = tuning.descent(tuned, slope)
            stride = tuning.stride(state.motion.friction, state.step, state.warmup)
            return metric, follows, stride.astype(slope.dtype)

        return jax.lax.cond(tuned.descends, descend, lambda: (found, tuned, step_size.astype(slope.dtype)))

    def _wanted(self, noise: PyTree, step_size: Array, metric: Metric | None) -> Array:
        """Twice the friction, less the noise that the gradient is known to bring."""
        if self.known_noise is None:
            brought = self.independence * step_size * times(metric, noise)
        elif isinstance(self.known_noise, float) and self.known_noise == 0.0:
            return jnp.asarray(2.0 * self.damping)
        else:
            brought = step_size * self.known_noise * (1.0 if metric is None else metric.scale)
        return jnp.maximum(2.0 * self.damping - brought, 0.0)

    def _advance(
        self, key: Key, target: Target, state: State, batch: Data, push: Push, slope: Slope
    ) -> tuple[Motion, Array, Array]:
        """The motion after a step or a corrected path, the log density met, and the acceptance if there is one."""

        def plain() -> tuple[Motion, Array, Array]:
            log_density = slope.log_density
            return self.splitting.advance(state.motion, push), log_density, jnp.full_like(log_density, jnp.nan)

        def corrected() -> tuple[Motion, Array, Array]:
            assert self.correction is not None
            size, metric = push.step_size, push.metric
            found = self.correction.propose(key, target, self.gradient, state.motion, batch, size, metric)
            return found.motion, found.log_density, found.acceptance

        if self.correction is None:
            return plain()
        return jax.lax.cond(state.tuning.descends, plain, corrected) if state.tuning else corrected()

    def _taught(self, state: State, motion: Motion, tuned: Tuning, acceptance: Array) -> tuple[Motion, Tuning]:
        """In warm-up: friction that does not answer the descent's heat, a step size that answers acceptance."""
        motion = motion._replace(friction=jnp.where(tuned.descends, state.motion.friction, motion.friction))
        return motion, tuned if self.correction is None else tuning.answer(tuned, acceptance)

    def _price(self, target: Target, batch: Data) -> Any:
        """How many times a step looks at all rows."""
        if self.correction is None:
            return batch.num / target.num
        return (self.correction.length * batch.capacity + 2 * self.correction.deciding) / target.num

    @property
    def periods(self) -> tuple[int, ...]:
        """Those of the moves."""
        return tuple(int(move.every) for move in self.moves)

    def pause(self, key: Key, target: Target, state: State, step: Array) -> State:
        """The moves whose turn it is."""
        like, position = shapes(target.model), state.position
        key = jax.random.fold_in(key, 1)
        for number, move in enumerate(self.moves):

            def redraw(move: Move = move, number: int = number, position: Array = position) -> Array:
                return ravel(move(jax.random.fold_in(key, number), target, unravel(like, position)))

            def stay(position: Array = position) -> Array:
                return position

            position = jax.lax.cond(step % move.every == 0, redraw, stay)
        return state._replace(motion=state.motion._replace(position=position))

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """When chains agree on a metric and a step size."""
        return tuning.meetings(warmup) if self._tunes else ()

    def report(self, state: State) -> Report | tuple[()]:
        """What was measured at the last meeting, and what the preconditioner gathered since."""
        if not state.tuning:
            return ()
        tuned = state.tuning
        return Report(tuned.measured, jnp.log(tuned.step_size), tuned.caution, self._found.report(state.metric))

    def meet(self, key: Key, target: Target, state: State, batch: Data, reports: Report) -> State:
        """A metric from all chains; at the last meeting one step size for all."""
        assert state.tuning
        key_curvature, key_momentum = jax.random.split(key)
        position, last = state.position, state.tuning.left == 1
        pooled = Measured(*(jnp.mean(part, axis=0) for part in reports.measured))
        gathered = self._found.meet(state.metric, reports.gathered)
        memory = jax.tree.map(lambda new, old: jnp.where(last, old, new), gathered, state.metric)
        metric = self._metric(memory, position)
        measured = tuning.measure(key_curvature, target, self.gradient, state.anchor, position, batch, metric)
        chosen = jax.tree.map(lambda old, new: jnp.where(last, old, new), pooled, measured)
        caution = jnp.min(reports.caution)
        step_size = caution * chosen.step_size(self.damping, self.schedule.reach)
        if self.correction is not None:
            step_size = jnp.where(last, jnp.exp(jnp.mean(reports.log_step)), step_size)
        step_size = step_size.astype(position.dtype)
        refuge = Refuge(position, memory, state.anchor, state.noise)
        tuned = state.tuning._replace(
            step_size=step_size, measured=chosen, left=state.tuning.left - 1, refuge=refuge, caution=caution
        )
        shake = shaken(metric, normal(key_momentum, position.shape, position.dtype))
        friction = jnp.asarray(self.damping, position.dtype)
        motion = Motion(position, shake / jnp.sqrt(step_size), friction, step_size)
        return state._replace(motion=motion, metric=memory, tuning=tuned)

    def are_draws(self, steps: np.ndarray) -> np.ndarray:
        """All but those of an exploration."""
        return self.schedule.samples(steps)

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """The step size, and what it does."""
        states = [trace.state for trace in traces]
        sizes = [float(self._size(state.tuning)) for state in states]
        least, most = f"{min(sizes):.3g}", f"{max(sizes):.3g}"
        shown = least if least == most else f"{least} to {most}"
        exact = self.correction.exact if self.correction is not None else self.schedule.asymptotically_exact
        exact = exact and self.noise == 1.0 and self._found.settles
        said = (
            "asymptotically exact." if exact else "not asymptotically exact: what its steps get wrong stays as a bias."
        )
        notes: tuple[str, ...] = (f"Step size {shown}, {type(self.schedule).__name__.lower()}; {said}",)
        if any(state.tuning and float(state.tuning.caution) < 1.0 for state in states):
            notes += ("A chain was lost in warm-up and went on from an earlier place with smaller steps.",)
        return notes


_ROOMS = {
    "schedule": "schedules",
    "preconditioner": "preconditioners",
    "gradient": "subsampling",
    "correction": "corrections",
}
