"""What stochastic-gradient samplers share: a gradient from a batch, noise, and what is plugged in between."""

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError, Result
from tunbridge.core.random import normal
from tunbridge.core.tree import flatten_with_paths, ravel, unravel
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference import scales
from tunbridge.inference.base import Iterative, check_door
from tunbridge.inference.chains import Chains
from tunbridge.inference.mixing import TEMPERATURE
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.recorded import Recorded
from tunbridge.inference.sampler import Info, Sampler, shapes
from tunbridge.inference.sgmcmc import tuning
from tunbridge.inference.sgmcmc.corrections import Correction
from tunbridge.inference.sgmcmc.moves import Move
from tunbridge.inference.sgmcmc.preconditioners import Fisher, Identity, Metric, Preconditioner, shaken, times
from tunbridge.inference.sgmcmc.splittings import Motion, Push, Splitting
from tunbridge.inference.sgmcmc.subsampling import Estimator, Plain, Slope
from tunbridge.inference.sgmcmc.tuning import Measured, Tuning
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Options, Run, Trace
from tunbridge.runtime.schedules import Constant, Pacing

_BATCH = 128
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


class Report(NamedTuple):
    """What a chain tells the others."""

    measured: Measured
    gathered: PyTree


class StochasticGradient(Sampler):
    """A sampler whose step costs a batch. A subclass says which motion it follows; the fields are described there."""

    step_size: float | None = None
    schedule: Pacing = eqx.field(default=Constant(), kw_only=True)
    preconditioner: Preconditioner | None = eqx.field(default=None, kw_only=True)
    gradient: Estimator = eqx.field(default=Plain(), kw_only=True)
    correction: Correction | None = eqx.field(default=None, kw_only=True)
    moves: tuple[Move, ...] = eqx.field(default=(), converter=tuple, kw_only=True)
    noise: float = eqx.field(default=1.0, converter=float, kw_only=True)
    run: Run = eqx.field(default=Run(warmup=4000, draws=500, thin=50), kw_only=True)

    integrators: ClassVar[tuple[type[Splitting], ...]] = ()

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

    def batch_size(self, num: int) -> int | None:
        """At most 128 of the rows unless told."""
        return min(num, _BATCH) if self.run.batch_size is None else self.run.batch_size

    def start(self, key: Key, target: Target, batch: Data) -> Params:
        """The network's own initial weights, scales at their medians, noise from its prior."""
        return Iterative.start(self, key, target, batch)

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """Settle what depends on the model and on all rows, then all chains."""
        check_door(model, data, key)
        if isinstance(data, Stream):
            bound, rows = model.bind(data.first)
            num = rows.num
        else:
            bound, data = model.bind(data)
            num = min(self.batch_size(data.num) or data.num, data.num)
        self._check(bound, num)
        key_settle = jax.random.fold_in(key, 3)
        epoch = -(-data.num // num)
        preconditioner = self.preconditioner
        if preconditioner is None:
            preconditioner = Fisher() if self.step_size is None else Identity()
        settled = dataclasses.replace(
            self,
            schedule=self.schedule.settled(self.run.thin),
            preconditioner=preconditioner,
            gradient=self.gradient.settled(bound, data, epoch, key_settle, options),
            correction=None if self.correction is None else self.correction.settled(data),
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
        if self._tunes or not isinstance(self.preconditioner, Identity):
            variance = scales.prior_variance(key_prior, target, batch)
        memory = self._found.begin(like, slope, variance)
        friction = jnp.asarray(self.damping, position.dtype)
        tuned: Tuning | tuple[()] = ()
        step_size: Any = self.step_size
        if self._tunes:
            measured = self._measure(key_curvature, target, anchor, position, batch, self._metric(memory, position))
            step_size = measured.step_size(friction, self.schedule.reach)
            tuned = tuning.begin(variance, slope, measured, step_size, warmup)
        motion = Motion(position, jnp.zeros_like(position), friction, jnp.asarray(step_size, position.dtype))
        noise = jnp.zeros_like(position) if self.known_noise is None else ()
        zero = jnp.zeros((), jnp.int32)
        return State(motion, memory, anchor, tuned, noise, jnp.ones_like(position), zero, warmup.astype(jnp.int32))

    @property
    def _tunes(self) -> bool:
        return self.step_size is None

    @property
    def _found(self) -> Preconditioner:
        assert self.preconditioner is not None  # settled before the loop
        return self.preconditioner

    def _size(self, tuned: Tuning | tuple[()]) -> Any:
        """The step size that was given or found."""
        return tuned.step_size if tuned else self.step_size

    def _metric(self, memory: PyTree, position: Array) -> Metric:
        found = self._found.metric(memory)
        return Metric(jnp.ones_like(position), jnp.ones_like(position)) if found is None else found

    def _measure(
        self, key: Key, target: Target, anchor: PyTree, position: Array, batch: Data, metric: Metric
    ) -> Measured:
        """The largest curvature here, by this batch, and the noise of its gradient."""

        def slope_of(position: Array) -> Array:
            return self.gradient.slope(target, anchor, position, batch).gradient

        curvature = scales.curvature(key, slope_of, position, metric.scale)
        if batch.num < 2:
            return Measured(curvature, jnp.zeros_like(curvature))
        halves = self._halves(target, anchor, position, batch).gradient
        return Measured(
            curvature, tuning.noisiest(shapes(target.model), halves, metric, jnp.minimum(batch.num / target.num, 1.0))
        )

    def _halves(self, target: Target, anchor: PyTree, position: Array, batch: Data) -> Slope:
        """The estimates of both halves of a batch."""
        half = batch.num // 2
        parts = jax.tree.map(lambda leaf: leaf[: 2 * half].reshape(2, half, *leaf.shape[1:]), batch)
        return jax.vmap(lambda part: self.gradient.slope(target, anchor, position, part))(parts)

    def step(self, key: Key, target: Target, state: State, batch: Data) -> tuple[State, Info]:
        """A gradient, a step along it with noise, and the moves whose turn it is."""
        key_noise, key_moves = key, jax.random.fold_in(key, 1)
        adapts = state.step < state.warmup
        anchor = self.gradient.follow(target, state.anchor, state.position, state.step)
        pace = self.schedule.at(jnp.maximum(state.step - state.warmup, 0))
        if self.correction is not None:
            return self._corrected(key, target, state._replace(anchor=anchor), batch, pace.step)
        noise = state.noise
        if self.known_noise is None:
            halves = self._halves(target, anchor, state.position, batch)
            slope = Slope(*(jnp.mean(part, axis=0) for part in halves))
            share = jnp.minimum(batch.num / target.num, 1.0)
            fresh = (1.0 - share) * ((halves.gradient[0] - halves.gradient[1]) / 2.0) ** 2
            noise = noise + jnp.maximum(1.0 - _NOISE_MEMORY, 1.0 / (state.step + 1.0)) * (fresh - noise)
        else:
            slope = self.gradient.slope(target, anchor, state.position, batch)
        memory = self._found.follow(state.metric, slope.gradient, adapts)
        metric, tuned = self._found.metric(memory), state.tuning
        step_size = pace.step * self._size(tuned)
        if tuned:
            metric, tuned, step_size = self._descending(memory, tuned, slope.gradient, step_size)
        shake = shaken(metric, normal(key_noise, state.position.shape, state.position.dtype))
        shake = (self.noise * pace.noise) * shake
        push = Push(slope.gradient, step_size, metric, shake, self._wanted(noise, step_size, metric))
        motion = self.splitting.advance(state.motion, push)
        if tuned:  # a thermostat would answer the descent's heat
            motion = motion._replace(friction=jnp.where(tuned.descends, state.motion.friction, motion.friction))
        energy = motion.step_size * motion.momentum * times(metric, motion.momentum)
        heat = state.heat + (1.0 - _MEMORY) * (energy / self.splitting.unit(motion.friction) - state.heat)
        motion = motion._replace(position=self._moved(key_moves, target, motion.position, state.step))
        nan = jnp.full_like(slope.log_density, jnp.nan)
        info = Info.of(slope.log_density, nan, jnp.asarray(False), nan, batch.num / target.num, Result.DIVERGED)
        return State(motion, memory, anchor, tuned, noise, heat, state.step + 1, state.warmup), info

    def _descending(
        self, memory: PyTree, tuned: Tuning, slope: Array, step_size: Array
    ) -> tuple[Metric, Tuning, Array]:
        """The metric and the step size of the descent while it lasts, then those that were found."""

        def descend() -> tuple[Metric, Tuning, Array]:
            follows, metric = tuning.descent(tuned, slope)
            return metric, follows, tuning.stride(self.damping).astype(slope.dtype)

        found = self._metric(memory, slope)
        return jax.lax.cond(tuned.descends, descend, lambda: (found, tuned, step_size.astype(slope.dtype)))

    def _wanted(self, noise: PyTree, step_size: Array, metric: Metric | None) -> Array:
        """Twice the friction, less the noise that the gradient is known to bring."""
        if self.known_noise is None:
            return jnp.maximum(2.0 * self.damping - step_size * times(metric, noise), 0.0)
        if isinstance(self.known_noise, float) and self.known_noise == 0.0:
            return jnp.asarray(2.0 * self.damping)
        brought = step_size * self.known_noise * (1.0 if metric is None else metric.scale)
        return jnp.maximum(2.0 * self.damping - brought, 0.0)

    def _corrected(self, key: Key, target: Target, state: State, batch: Data, pace: Array) -> tuple[State, Info]:
        """A path and a Metropolis step; gradients of the path's beginning teach warm-up."""
        assert self.correction is not None
        slope = self.gradient.slope(target, state.anchor, state.position, batch)
        memory = self._found.follow(state.metric, slope.gradient, state.step < state.warmup)
        metric, tuned = self._found.metric(memory), state.tuning
        step_size = pace * self._size(tuned)
        if tuned:
            metric, tuned, step_size = self._descending(memory, tuned, slope.gradient, step_size)
        found = self.correction.propose(key, target, self.gradient, state.motion, batch, step_size, metric)
        motion = found.motion
        energy = motion.step_size * motion.momentum * times(metric, motion.momentum)
        heat = state.heat + (1.0 - _MEMORY) * (energy - state.heat)
        motion = motion._replace(position=self._moved(jax.random.fold_in(key, 1), target, motion.position, state.step))
        gradients = (self.correction.length * batch.num + 2 * self.correction.deciding) / target.num
        nan = jnp.full_like(found.log_density, jnp.nan)
        info = Info.of(found.log_density, found.acceptance, jnp.asarray(False), nan, gradients, Result.DIVERGED)
        return State(motion, memory, state.anchor, tuned, (), heat, state.step + 1, state.warmup), info

    def _moved(self, key: Key, target: Target, position: Array, step: Array) -> Array:
        """After the moves whose turn it is."""
        like = shapes(target.model)
        for number, move in enumerate(self.moves):

            def redraw(move: Move = move, number: int = number, position: Array = position) -> Array:
                return ravel(move(jax.random.fold_in(key, number), target, unravel(like, position)))

            def stay(position: Array = position) -> Array:
                return position

            position = jax.lax.cond((step + 1) % move.every == 0, redraw, stay)
        return position

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """When chains agree on a metric and a step size."""
        return tuning.meetings(warmup) if self._tunes else ()

    def report(self, state: State) -> Report | tuple[()]:
        """What was measured at the last meeting, and what the preconditioner gathered since."""
        return Report(state.tuning.measured, self._found.report(state.metric)) if state.tuning else ()

    def meet(self, key: Key, target: Target, state: State, batch: Data, reports: Report) -> State:
        """A metric from all chains; at the last meeting one step size for all."""
        assert state.tuning
        key_curvature, key_momentum = jax.random.split(key)
        last = state.tuning.left == 1
        pooled = Measured(*(jnp.mean(part, axis=0) for part in reports.measured))
        gathered = self._found.meet(state.metric, reports.gathered)
        memory = jax.tree.map(lambda new, old: jnp.where(last, old, new), gathered, state.metric)
        metric = self._metric(memory, state.position)
        measured = self._measure(key_curvature, target, state.anchor, state.position, batch, metric)
        chosen = jax.tree.map(lambda old, new: jnp.where(last, old, new), pooled, measured)
        step_size = chosen.step_size(self.damping, self.schedule.reach).astype(state.position.dtype)
        tuned = state.tuning._replace(step_size=step_size, measured=chosen, left=state.tuning.left - 1)
        shake = shaken(metric, normal(key_momentum, state.position.shape, state.position.dtype))
        friction = jnp.asarray(self.damping, state.position.dtype)
        motion = Motion(state.position, shake / jnp.sqrt(step_size), friction, step_size)
        return state._replace(motion=motion, metric=memory, tuning=tuned)

    def keep(self, target: Target, state: State) -> PyTree:
        """The position or the outputs, and the kinetic temperature of each group of unknowns."""
        groups = jax.tree.leaves(unravel(shapes(target.model), state.heat))
        return super().keep(target, state), jnp.stack([jnp.mean(group) for group in groups])

    def facts(self, target: Target, state: State) -> dict[str, float]:
        """The coldest and the hottest group of unknowns, for the progress bar."""
        heat = np.asarray(state.heat)
        sizes = [int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes(target.model))]
        means = [part.mean() for part in np.split(heat, np.cumsum(sizes)[:-1], axis=-1)]
        return {"coldest": float(min(means)), "hottest": float(max(means))}

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Chains | Recorded:
        """The draws of all chains, with the temperature of each group of unknowns."""
        plan, pacing = self.run.plan(), self.schedule
        num = min(len(trace.kept[1]) for trace in traces)
        draws = pacing.samples((1 + np.arange(num)) * plan.thin - 1)
        kept = [
            trace._replace(
                kept=jax.tree.map(lambda leaf: leaf[:num][draws], trace.kept[0]),
                info=jax.tree.map(lambda leaf: leaf[:num][draws], trace.info),
            )
            for trace in traces
        ]
        found = super().posterior(model, data, kept, key)
        heat = np.stack([np.asarray(trace.kept[1])[:num][draws] for trace in traces])
        names = [f"{TEMPERATURE}{path}" for path, _ in flatten_with_paths(shapes(model))]
        warm = {name: jnp.asarray(heat[..., i]) for i, name in enumerate(names)}
        return dataclasses.replace(found, stats={**found.stats, **warm})

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """The step size, and what it does."""
        states = [trace.state for trace in traces]
        sizes = [float(self._size(state.tuning)) for state in states]
        least, most = f"{min(sizes):.3g}", f"{max(sizes):.3g}"
        shown = least if least == most else f"{least} to {most}"
        exact = (self.schedule.asymptotically_exact and self.noise == 1.0) or (
            self.correction is not None and self.correction.exact
        )
        said = (
            "asymptotically exact." if exact else "not asymptotically exact: what its steps get wrong stays as a bias."
        )
        return (f"Step size {shown}, {type(self.schedule).__name__.lower()}; {said}",)


_ROOMS = {
    "schedule": "schedules",
    "preconditioner": "preconditioners",
    "gradient": "subsampling",
    "correction": "corrections",
}
