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
    """What the next step needs."""

    chain: Any
    """The kernel's own state, with a position."""
    tuning: Tuning

    @property
    def position(self) -> Array:
        """Everything unknown."""
        return self.chain.position


class Adaptive(Sampler):
    """A sampler whose step size follows the acceptance it meets in warm-up, and whose mass matrix all chains agree on.

    A subclass says what one transition is (`move`). Chains begin with the gradient where they are, and with a step of
    one over the root of the largest curvature there, measured in the prior's scales.
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
        """The kernel's first state, and a step size to begin with, in units of the prior's scales."""
        chain = blackjax.hmc.init(position, density)
        if self.step_size is not None:
            return chain, jnp.ones((), position.dtype)
        return chain, 1.0 / jnp.sqrt(scales.curvature(key, jax.grad(density), position, variance))

    @abc.abstractmethod
    def move(self, key: Key, density: Density, chain: Any, step_size: Array, inverse_mass: PyTree) -> tuple[Any, Info]:
        """One transition."""

    def gradient(self, chain: Any) -> Array:
        """The gradient of the log density where a chain is, as the kernel has left it."""
        return chain.logdensity_grad

    def wanted(self, num: int) -> Any:
        """The acceptance that the step size is tuned to, in `num` dimensions."""
        return self.acceptance

    def transition(self, key: Key, density: Density, state: AdaptiveState, step_size: Array) -> tuple[Any, Info]:
        """One transition, which may differ while there is warm-up."""
        return self.move(key, density, state.chain, step_size, state.tuning.inverse_mass)

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> AdaptiveState:
        """The density where the chain starts, and a first step size."""
        key_prior, key_begin = jax.random.split(key)
        variance, position = scales.prior_variance(key_prior, target, batch), ravel(params)
        chain, step_size = self.begin(key_begin, log_density(target, batch), position, variance)
        if self.step_size is not None:
            step_size = jnp.asarray(self.step_size, position.dtype)
        return AdaptiveState(chain, tuning.begin(self.mass, variance, step_size, warmup))

    def step(self, key: Key, target: Target, state: AdaptiveState, batch: Data) -> tuple[AdaptiveState, Info]:
        """One transition, and in warm-up what it teaches."""
        tuned, dtype, num = state.tuning, state.position.dtype, state.position.shape[0]
        step_size = tuned.step_size if self.step_size is None else jnp.asarray(self.step_size, dtype)
        chain, info = self.transition(key, log_density(target, batch), state, step_size)
        tuned = tuning.follow(tuned, self.mass, chain.position, self.gradient(chain), info.acceptance, self.wanted(num))
        return AdaptiveState(chain, tuned), info

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """When chains agree on a mass matrix and a step size."""
        return tuning.meetings(warmup)

    def report(self, state: AdaptiveState) -> Report:
        """What a chain has gathered."""
        return tuning.report(state.tuning)

    def meet(self, key: Key, target: Target, state: AdaptiveState, batch: Data, reports: Any) -> AdaptiveState:
        """With what all agreed on."""
        return state._replace(tuning=tuning.meet(state.tuning, self.mass, reports))

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """The step size that was found."""
        if self.step_size is not None:
            return ()
        averaging = traces[0].state.tuning.averaging
        return (f"Step size {np.exp(float(averaging.log_step_size_avg)):.3g}, tuned in warm-up.",)
