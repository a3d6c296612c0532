"""The mode of the weights at noise and prior scales that are given."""

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
from tunbridge.runtime.loop import Trace, Train


class Mode(Iterative):
    """The most probable weights where noise and prior scales are what they are: nothing is measured.

    Its steps are those of `MAP` after the noise is measured, so that one compiled program serves both.
    """

    point: MAP
    """With as many steps before these, to be left out, where it would measure the noise."""
    train: Train
    noisy: bool = eqx.field(static=True)
    """Whether the noise is one of the model's unknowns."""

    @staticmethod
    def of(point: MAP, train: Train, noisy: bool) -> "Mode":
        """By the optimiser of a point estimate."""
        whole = dataclasses.replace(train, steps=2 * train.steps) if noisy else train
        return Mode(dataclasses.replace(point, train=whole), train, noisy)

    @property
    def duration(self) -> Train:
        """How long it trains."""
        return self.train

    @property
    def stepper(self) -> MAP:
        """The point estimate."""
        return self.point

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> DescentState:
        """The point estimate's state at the moment when its noise is measured."""
        fresh = self.point.init(key, target, params._replace(noise=()), batch, warmup)
        measure: PyTree = ()
        if params.noise:
            nowhere, salt = jnp.asarray(-jnp.inf), jnp.zeros_like(holdout.salt(key, batch))
            measure = Measure(salt, jnp.zeros((), jnp.uint32), params.noise, nowhere, nowhere, params.noise)
        step = jnp.asarray(self.train.steps if self.noisy else 0, jnp.int32)
        return strong(fresh._replace(params=params, step=step, measure=measure))

    def step(self, key: Key, target: Target, state: DescentState, batch: Data) -> tuple[DescentState, Any]:
        """The point estimate's."""
        return self.point.step(key, target, state, batch)

    def keep(self, target: Target, state: DescentState) -> PyTree:
        """Nothing: the last state is what counts."""
        return ()

    def done(self, state: DescentState) -> bool | Array:
        """Whether patience has run out."""
        return self.point.done(state)

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Posterior:
        """A point at the last state."""
        (trace,) = traces
        return Point(model, key, trace.state.params)
