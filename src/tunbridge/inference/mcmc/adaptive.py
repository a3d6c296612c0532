"""Samplers whose step size and mass matrix are tuned in warm-up, with or without gradients."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.tree import ravel
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference import scales
from tunbridge.inference.mcmc import tuning
from tunbridge.inference.mcmc.mass import Diagonal, Mass
from tunbridge.inference.mcmc.tuning import Report, Tuning
from tunbridge.inference.sampler import Info, Sampler, log_density
from tunbridge.model.model import Target
from tunbridge.runtime.loop import Trace

Density = Callable[[Array], Array]


class AdaptiveState(NamedTuple):
    """State of an adaptive sampler: the kernel's state, and its tuning."""

    chain: Any
    """The kernel's own state, which has a `position`."""
    tuning: Tuning

    @property
    def position(self) -> Array:
        """All unknowns in one vector."""
        return self.chain.position


class Adaptive(Sampler):
    """A sampler that tunes its step size to an acceptance rate in warm-up, with one mass matrix for all chains.

    A subclass defines one transition (`move`). A chain starts with the gradient at its initial position, and with a
    step size of one over the square root of the largest curvature there, measured in units of the prior's scales.
    """

    step_size: float | None = None
    acceptance: float | None = None
    mass: Mass = Diagonal()

    def __check_init__(self):
        if self.step_size is not None and not self.step_size > 0:
            raise InputError("a step size above 0", f"{self.step_size}", "Leave it out to have it tuned.")
        if self.acceptance is not None and not 0.0 < self.acceptance < 1.0:
            raise InputError("an acceptance between 0 and 1", f"{self.acceptance}", "Try 0.8.")

    def begin(self, key: Key, density: Density, position: Array, variance: Array) -> tuple[Any, Array]:
        """Return the kernel's initial state, and an initial step size in units of the prior's scales."""
        chain = blackjax.hmc.init(position, density)
        if self.step_size is not None:
            return chain, jnp.ones((), position.dtype)
        return chain, 1.0 / jnp.sqrt(scales.curvature(key, jax.grad(density), position, variance))

    @abc.abstractmethod
    def move(self, key: Key, density: Density, chain: Any, step_size: Array, inverse_mass: PyTree) -> tuple[Any, Info]:
        """Return the chain after one transition, and its `Info`."""

    def gradient(self, chain: Any) -> Array:
        """Gradient of the log density at the chain's position, as stored by the kernel."""
        return chain.logdensity_grad

    def wanted(self, num: int) -> Any:
        """Acceptance rate that the step size is tuned to, in `num` dimensions."""
        return self.acceptance

    def transition(self, key: Key, density: Density, state: AdaptiveState, step_size: Array) -> tuple[Any, Info]:
        """Return the chain after one transition, which a subclass may change in warm-up, and its `Info`."""
        return self.move(key, density, state.chain, step_size, state.tuning.inverse_mass)

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> AdaptiveState:
        """Initial state: the log density at the start, and a first step size."""
        key_prior, key_begin = jax.random.split(key)
        variance, position = scales.prior_variance(key_prior, target, batch), ravel(params)
        chain, step_size = self.begin(key_begin, log_density(target, batch), position, variance)
        if self.step_size is not None:
            step_size = jnp.asarray(self.step_size, position.dtype)
        return AdaptiveState(chain, tuning.begin(self.mass, variance, step_size, warmup))

    def step(self, key: Key, target: Target, state: AdaptiveState, batch: Data) -> tuple[AdaptiveState, Info]:
        """Make one transition and, in warm-up, update the tuning."""
        tuned, dtype, num = state.tuning, state.position.dtype, state.position.shape[0]
        step_size = tuned.step_size if self.step_size is None else jnp.asarray(self.step_size, dtype)
        chain, info = self.transition(key, log_density(target, batch), state, step_size)
        tuned = tuning.follow(tuned, self.mass, chain.position, self.gradient(chain), info.acceptance, self.wanted(num))
        return AdaptiveState(chain, tuned), info

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """Steps of warm-up after which chains agree on a mass matrix and a step size."""
        return tuning.meetings(warmup)

    def report(self, state: AdaptiveState) -> Report:
        """What a chain contributes to a meeting: its step size, metric and statistics of its draws."""
        return tuning.report(state.tuning)

    def meet(self, key: Key, target: Target, state: AdaptiveState, batch: Data, reports: Any) -> AdaptiveState:
        """State with the mass matrix and the step size that all chains agreed on."""
        return state._replace(tuning=tuning.meet(state.tuning, self.mass, reports))

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """The tuned step size; nothing if it was given."""
        if self.step_size is not None:
            return ()
        averaging = traces[0].state.tuning.averaging
        return (f"Step size {np.exp(float(averaging.log_step_size_avg)):.3g}, tuned in warm-up.",)
