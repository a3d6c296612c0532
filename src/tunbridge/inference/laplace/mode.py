"""The mode of the weights at fixed noise and prior scales."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.tree import strong
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.base import Iterative
from tunbridge.inference.point import holdout
from tunbridge.inference.point.descent import DescentState
from tunbridge.inference.point.map import MAP
from tunbridge.inference.point.noise import Measure
from tunbridge.inference.posteriors import Point, Posterior
from tunbridge.model.model import Model, Target
from tunbridge.runtime.durations import Train
from tunbridge.runtime.loop import Trace


class Mode(Iterative):
    """The mode of the weights with noise and prior scales fixed at their values in the start.

    Its steps are those of `MAP` after the noise is measured, so both share one compiled program.
    """

    point: MAP
    """Has three times the steps if the noise is unknown: the stages that would measure the noise are skipped."""
    train: Train
    noisy: bool = eqx.field(static=True)
    """Whether the model has unknown noise."""

    @staticmethod
    def of(point: MAP, train: Train, noisy: bool) -> "Mode":
        """Return the method with the optimiser of a point estimate."""
        whole = dataclasses.replace(train, steps=3 * train.steps) if noisy else train
        return Mode(dataclasses.replace(point, train=whole), train, noisy)

    @property
    def duration(self) -> Train:
        """The steps and batch size of training."""
        return self.train

    @property
    def gradients_per_step(self) -> int | None:
        """One gradient per step."""
        return 1

    @property
    def stepper(self) -> MAP:
        """The point estimate, whose compiled program is used."""
        return self.point

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> DescentState:
        """Return the point estimate's state as it is just after the noise is measured."""
        fresh = self.point.init(key, target, params._replace(noise=()), batch, warmup)
        measure: PyTree = ()
        if params.noise:
            nowhere, salt = jnp.asarray(-jnp.inf), jnp.zeros_like(holdout.salt(key, batch))
            measure = Measure(salt, jnp.zeros((), jnp.uint32), params.noise, nowhere, nowhere, params.noise)
        step = jnp.asarray(2 * self.train.steps if self.noisy else 0, jnp.int32)
        return strong(fresh._replace(params=params, step=step, measure=measure))

    def step(self, key: Key, target: Target, state: DescentState, batch: Data) -> tuple[DescentState, Any]:
        """Take a step of the point estimate."""
        return self.point.step(key, target, state, batch)

    def keep(self, target: Target, state: DescentState) -> PyTree:
        """Store nothing: only the last state is used."""
        return ()

    def done(self, state: DescentState) -> bool | Array:
        """Whether patience has run out."""
        return self.point.done(state)

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Posterior:
        """Return the point estimate at the last state."""
        (trace,) = traces
        return Point(model, key, trace.state.params)
