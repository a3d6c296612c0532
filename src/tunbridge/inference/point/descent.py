"""What trained methods share: an optimiser, and noise measured on rows held out."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.errors import InputError, NumericalError, Result
from tunbridge.core.random import fold_in
from tunbridge.core.tree import all_finite, strong
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.inference.base import Iterative
from tunbridge.inference.point import noise, orthant
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Train
from tunbridge.runtime.patience import Patience
from tunbridge.runtime.schedules import Cosine


def adam(step_size: Any) -> optax.GradientTransformation:
    """Adam that forgets squared gradients within 100 steps instead of 1,000.

    The large gradients of the first steps would otherwise hold back the last ones: on the exact problems 2,000 steps
    of optax's default end up to 0.1 posterior standard deviations from the mode, these within 2e-6.
    """
    return optax.flatten(optax.adam(step_size, b2=0.99))


class DescentState(NamedTuple):
    """What the next step needs."""

    params: Params
    extra: PyTree
    """What the optimiser moves besides the weights once the noise is measured, else ()."""
    optimiser: PyTree
    step: Array
    measure: PyTree
    """A `noise.Measure` where noise is unknown, else ()."""
    given: PyTree
    """Weights to take up again once the noise is measured, where `fit` was given some, else ()."""
    patience: PyTree
    """A `Patience` where it is asked for, else ()."""

    @property
    def measured(self) -> Params:
        """The parameters, with the noise that was measured."""
        return self.params._replace(noise=self.measure.best_noise) if self.measure else self.params


class Info(NamedTuple):
    """What a reader may want to know of a step."""

    result: Array
    loss: Array
    """Minus the objective / N, up to a constant."""

    @classmethod
    def of(cls, loss: Array) -> "Info":
        """A step that failed if its loss is not finite."""
        result = jnp.where(jnp.isfinite(loss), Result.SUCCESSFUL, Result.NONFINITE_OBJECTIVE)
        return cls(result.astype(jnp.int32), loss)


class Descent(Iterative):
    r"""Maximise an objective over weights, and whatever else the method moves with them.

    Its fields, and what becomes of unknown noise and prior scales, are described where they are used: `tunbridge.MAP`.
    """

    step_size: float = eqx.field(default=1e-2, converter=float)
    optimiser: Callable[[Any], optax.GradientTransformation] = eqx.field(
        default=adam,
        static=True,
        metadata={"way": "Pass optax.adam, not optax.adam(1e-3); give the number as step_size=."},
    )
    decay: Callable[[Array], Array] = Cosine()
    train: Train = Train()

    def __check_init__(self):
        if not self.step_size > 0:
            raise InputError("a step size above 0", f"{self.step_size}", "Try 0.01.")
        if not (callable(self.decay) and isinstance(self.decay, eqx.Module)):
            raise InputError("decay= as a schedule", f"{self.decay!r}", "Use tb.schedules.Cosine() or Constant().")

    @property
    def duration(self) -> Train:
        """How long it trains."""
        return self.train

    def within(self, gradients: int, rows: int) -> Self:
        """All steps of its training."""
        return dataclasses.replace(self, train=self.train.within(gradients, rows))

    def believed(self, model: Model) -> Model:
        """With prior scales integrated out where that has a closed form."""
        return model.marginal()

    @abc.abstractmethod
    def objective(self, key: Key, target: Target, params: Params, extra: PyTree, batch: Data) -> Scalar:
        """What is maximised: an estimate for the whole data set from one batch."""

    def extra(self, target: Target, params: Params, batch: Data) -> PyTree:
        """What is moved besides the weights: where it starts."""
        return ()

    def outputs(self, key: Key, target: Target, params: Params, x: Array) -> Array:
        """Outputs (networks, points, outputs) by which noise is measured: of what a prediction would average."""
        return target.model.outputs(params, x)[None]

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> DescentState:
        """The optimiser's state, and where noise is unknown the rows held out to measure it."""
        measure: PyTree = ()
        if params.noise:
            params, measure = noise.begin(key, target, params, batch)
        extra = self.extra(target, params, batch)
        patience = () if self.train.patience is None else Patience.fresh()
        memory = self._optax(0.0).init((params.weights, extra))
        return strong(DescentState(params, extra, memory, jnp.zeros((), jnp.int32), measure, (), patience))

    def init_at(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> DescentState:
        """The first state at weights that were given.

        They may have seen the rows that are held out, so noise is measured with weights of a fresh start.
        """
        if not params.noise:
            return self.init(key, target, params, batch, warmup)
        key_start, key_init = jax.random.split(key)
        fresh = self.start(key_start, target, batch)._replace(scales=params.scales)
        return self.init(key_init, target, fresh, batch, warmup)._replace(given=params.weights)

    def step(self, key: Key, target: Target, state: DescentState, batch: Data) -> tuple[DescentState, Info]:
        """One step of the optimiser."""
        half = self._half(state)
        if state.given:
            state = self._taken_up(state, state.step == half)
        params, measure = state.params, state.measure
        refits, counted = state.step >= half, batch
        if measure:
            held = measure.rows(batch)
            noise_now = jax.tree.map(lambda new, old: jnp.where(refits, new, old), measure.best_noise, params.noise)
            params, counted = params._replace(noise=noise_now), batch.where(refits | ~held)

        def loss_of(free):
            weights, extra = free
            return -self.objective(key, target, params._replace(weights=weights), extra, counted) / target.num

        free = (params.weights, state.extra)
        loss, (slope_weights, slope_extra) = jax.value_and_grad(loss_of)(free)
        corners = self._corners(target, params)
        if corners is not None:
            slope_weights = orthant.slopes(slope_weights, params.weights, corners)
        slope = slope_weights, jax.tree.map(lambda leaf: jnp.where(refits, leaf, 0.0), slope_extra)
        length = jnp.where(refits, self.train.steps - half, half)
        optimiser = self._optax(self.decay((state.step - jnp.where(refits, half, 0)) / length))
        updates, memory = optimiser.update(slope, state.optimiser, free, value=loss, grad=slope, value_fn=loss_of)
        if measure:
            key_outputs = fold_in(key, 1)

            def follow():
                outputs = self.outputs(key_outputs, target, params, batch.x)
                return noise.follow(measure, target, outputs, batch, held)

            measure = jax.lax.cond(refits, lambda: measure, follow)
        weights, extra = optax.apply_updates(free, updates)
        if corners is not None:
            weights = orthant.within(weights, params.weights, slope_weights, corners)
        patience = state.patience.after(loss, state.step == half) if state.patience else ()
        moved = params._replace(weights=weights)
        fresh = DescentState(moved, extra, memory, state.step + 1, measure, state.given, patience)
        if patience:
            fresh = jax.lax.cond(self.done(state), lambda: state, lambda: fresh)
        return fresh, Info.of(loss)

    def _half(self, state: DescentState) -> Any:
        """After how many steps the noise is measured and the refit begins."""
        return self.train.steps >> 1 if state.measure else 0

    def done(self, state: DescentState) -> bool | Array:
        """Whether patience has run out, after the noise was measured."""
        if not state.patience:
            return False
        half = self._half(state)
        return (state.patience.since >= self.train.patience) & (state.step > half)

    def keep(self, target: Target, state: DescentState) -> PyTree:
        """Nothing: the last state is what counts."""
        return ()

    def reached(self, state: DescentState) -> Params:
        """The parameters of a last state, with the noise that was measured; NumericalError if they failed."""
        params = state.measured
        if not all_finite(params):
            raise NumericalError(Result.NONFINITE_STATE, int(state.step), 0, "Nothing can be predicted with it.")
        return params

    def curve(self, state: DescentState, info: Any) -> dict[str, Array]:
        """The statistics of the steps that were taken, by name."""
        return {name: leaf[: int(state.step) // self.train.plan().thin] for name, leaf in info._asdict().items()}

    def _corners(self, target: Target, params: Params) -> PyTree | None:
        """How steeply the loss rises from the prior's corners at zero; None where it is smooth."""
        prior, layout = target.model.prior, target.model.network.layout(params.weights)
        corners = prior.corners(params.weights, params.scales, layout)
        return None if corners is None else jax.tree.map(lambda c: c / target.num, corners)

    def _optax(self, factor: Any) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(self.optimiser(self.step_size * factor))

    def _taken_up(self, state: DescentState, begins: Array) -> DescentState:
        """The state with the given weights and a new optimiser, where the refit begins."""
        memory = strong(self._optax(0.0).init((state.given, state.extra)))
        new, old = (state.given, memory), (state.params.weights, state.optimiser)
        weights, memory = jax.tree.map(lambda a, b: jnp.where(begins, a, b), new, old)
        return state._replace(params=state.params._replace(weights=weights), optimiser=memory)

    def notes(self, params: Params, step: int) -> tuple[str, ...]:
        """What a reader should know of this run."""
        notes = []
        if params.scales:
            notes.append("Unknown prior scales were held at the medians of their priors.")
        if params.noise:
            refitted = "then the weights were refitted to all rows."
            missed = "the run ended before the weights were refitted to all rows."
            notes.append(f"Noise was measured on held-out rows, {refitted if step > self.train.steps // 2 else missed}")
        if step < self.train.steps:
            notes.append(f"Stopped after {step} of {self.train.steps} steps.")
        return tuple(notes)
