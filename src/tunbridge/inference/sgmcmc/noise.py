"""The noise of a minibatch gradient, and how much of it is taken off the noise that a sampler injects."""

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
from tunbridge.inference.sgmcmc.subsampling import Estimate, Estimator
from tunbridge.model.model import Target

_MEMORY = 0.999
"""Decay of the running mean of the gradient's variance."""


class GradientNoise(Module):
    """A model of the gradient noise; its running estimate is the state's `noise`."""

    def check(self, num: int) -> None:
        """InputError if the noise cannot be measured with batches of `num` rows."""

    def begin(self, position: Array) -> PyTree:
        """Memory before the first step."""
        return ()

    def estimate(
        self, estimator: Estimator, target: Target, anchor: PyTree, state: DynamicsState, batch: Data
    ) -> tuple[Estimate, PyTree]:
        """Gradient of a batch, and the memory after it."""
        return estimator.estimate(target, anchor, state.position, batch), state.noise

    @abc.abstractmethod
    def brought(self, memory: PyTree, step_size: Array, metric: Metric | None, independence: Any) -> Any:
        """Noise that the gradient brings into a step, in units of twice the friction."""


class Ignored(GradientNoise):
    """Treats gradients as free of noise."""

    def brought(self, memory: PyTree, step_size: Array, metric: Metric | None, independence: Any) -> Any:
        """0: no noise."""
        return 0.0


class Known(GradientNoise):
    """A given variance of each entry of the gradient."""

    variance: Any

    def brought(self, memory: PyTree, step_size: Array, metric: Metric | None, independence: Any) -> Any:
        """Noise of the given variance."""
        return step_size * self.variance * (1.0 if metric is None else metric.scale)


class Halves(GradientNoise):
    """Measures the noise at every step, from the two halves of its batch."""

    def check(self, num: int) -> None:
        """InputError unless `num` is even, so that batches have halves."""
        if num % 2 or num < 2:
            raise InputError(
                "an even number of rows per batch, whose halves measure the noise of its gradient",
                f"{num}",
                "Change batch_size=, or give noise_estimate a number.",
            )

    def begin(self, position: Array) -> PyTree:
        """Zeros: nothing is measured yet."""
        return jnp.zeros_like(position)

    def estimate(
        self, estimator: Estimator, target: Target, anchor: PyTree, state: DynamicsState, batch: Data
    ) -> tuple[Estimate, PyTree]:
        """Mean of both halves, and a running mean of the variance estimated from their difference."""
        halves = tuning.halves(target, estimator, anchor, state.position, batch)
        fresh = tuning.variance(halves, target, batch)
        memory = jnp.maximum(1.0 - _MEMORY, 1.0 / (state.step + 1.0))
        return Estimate(*(jnp.mean(part, axis=0) for part in halves)), state.noise + memory * (fresh - state.noise)

    def brought(self, memory: PyTree, step_size: Array, metric: Metric | None, independence: Any) -> Any:
        """Share of the noise that heats the chain: batches of an epoch are not independent."""
        return independence * step_size * times(metric, memory)
