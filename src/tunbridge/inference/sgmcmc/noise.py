"""The noise of a batch's gradient: how much of it is left out of the noise that a sampler injects."""

import abc
from typing import Any

import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.inference.sgmcmc import tuning
from tunbridge.inference.sgmcmc.preconditioners import Metric, times
from tunbridge.inference.sgmcmc.state import DynamicsState
from tunbridge.inference.sgmcmc.subsampling import Estimator, Slope
from tunbridge.model.model import Target

_MEMORY = 0.999
"""Of the running mean of the gradient's variance."""


class GradientNoise(Module):
    """What is known of it. Its memory is the `noise` of a state."""

    def check(self, num: int) -> None:
        """InputError where batches of `num` rows do not tell it."""

    def begin(self, position: Array) -> PyTree:
        """The memory before the first step."""
        return ()

    def estimate(
        self, estimator: Estimator, target: Target, anchor: PyTree, state: DynamicsState, batch: Data
    ) -> tuple[Slope, PyTree]:
        """The gradient of a batch, and the memory after it."""
        return estimator.slope(target, anchor, state.position, batch), state.noise

    @abc.abstractmethod
    def brought(self, memory: PyTree, step_size: Array, metric: Metric | None, independence: Any) -> Any:
        """The noise that it brings into a step, in units of twice the friction."""


class Ignored(GradientNoise):
    """As if there were none."""

    def brought(self, memory: PyTree, step_size: Array, metric: Metric | None, independence: Any) -> Any:
        """None."""
        return 0.0


class Known(GradientNoise):
    """A variance of each number in the gradient."""

    variance: Any

    def brought(self, memory: PyTree, step_size: Array, metric: Metric | None, independence: Any) -> Any:
        """As told."""
        return step_size * self.variance * (1.0 if metric is None else metric.scale)


class Halves(GradientNoise):
    """Measured at every step, by the two halves of its batch."""

    def check(self, num: int) -> None:
        """Odd numbers have no halves."""
        if num % 2 or num < 2:
            raise InputError(
                "an even number of rows a batch, whose halves tell the noise of its gradient",
                f"{num}",
                "Change batch_size=, or give noise_estimate a number.",
            )

    def begin(self, position: Array) -> PyTree:
        """Nothing measured."""
        return jnp.zeros_like(position)

    def estimate(
        self, estimator: Estimator, target: Target, anchor: PyTree, state: DynamicsState, batch: Data
    ) -> tuple[Slope, PyTree]:
        """The mean of both halves, and a running mean of the variance that their difference tells."""
        halves = tuning.halves(target, estimator, anchor, state.position, batch)
        fresh = tuning.variance(halves, target, batch)
        memory = jnp.maximum(1.0 - _MEMORY, 1.0 / (state.step + 1.0))
        return Slope(*(jnp.mean(part, axis=0) for part in halves)), state.noise + memory * (fresh - state.noise)

    def brought(self, memory: PyTree, step_size: Array, metric: Metric | None, independence: Any) -> Any:
        """The share of it that heats: batches of an epoch are not independent."""
        return independence * step_size * times(metric, memory)
