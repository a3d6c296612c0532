"""Hamiltonian Monte Carlo, and its trajectories that end where they turn back."""

import abc
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.mcmc import metrics as kinetics
from blackjax.mcmc.hmc import HMCState
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.tree import ravel
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.mcmc import scales, tuning
from tunbridge.inference.mcmc.mass import Diagonal, Mass
from tunbridge.inference.mcmc.sampler import Info, Sampler, log_density
from tunbridge.inference.mcmc.tuning import Report, Tuning
from tunbridge.model.model import Target
from tunbridge.runtime.loop import Trace


class State(NamedTuple):
    """What the next step needs."""

    chain: HMCState
    tuning: Tuning

    @property
    def position(self) -> Array:
        """Everything unknown."""
        return self.chain.position


class Tuned(Sampler):
    """A sampler that follows gradients, whose step size and mass matrix are tuned in warm-up.

    The first step size is one over the root of the largest curvature at the start, measured in the prior's scales.
    """

    step_size: float | None = None
    acceptance: float = eqx.field(default=0.8, converter=float)
    mass: Mass = Diagonal()

    def __check_init__(self):
        if self.step_size is not None and not self.step_size > 0:
            raise InputError("a step size above 0", f"{self.step_size}", "Leave it out to have it tuned.")
        if not 0.0 < self.acceptance < 1.0:
            raise InputError("an acceptance between 0 and 1", f"{self.acceptance}", "Try 0.8.")
        if not isinstance(self.mass, Mass):
            raise InputError("mass= from tb.mass", repr(self.mass)[:60], "Use tb.mass.Diagonal(), say.")

    @abc.abstractmethod
    def move(
        self, key: Key, density: Callable[[Array], Array], chain: HMCState, step_size: Array, inverse_mass: PyTree
    ) -> tuple[HMCState, Info]:
        """One transition."""

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> State:
        """The density where the chain starts, and a first step size from the curvature there."""
        key_prior, key_curvature = jax.random.split(key)
        density = log_density(target, batch)
        chain = blackjax.hmc.init(ravel(params), density)
        variance = scales.prior_variance(key_prior, target, batch)
        if self.step_size is None:
            most = scales.curvature(key_curvature, jax.grad(density), chain.position, variance)
            step_size = 1.0 / jnp.sqrt(most)
        else:
            step_size = jnp.asarray(self.step_size, chain.position.dtype)
        return State(chain, tuning.begin(self.mass, variance, step_size, warmup))

    def step(self, key: Key, target: Target, state: State, batch: Data) -> tuple[State, Info]:
        """One transition, and in warm-up what it teaches."""
        chain, tuned = state
        step_size = tuned.step_size if self.step_size is None else jnp.asarray(self.step_size, chain.position.dtype)
        chain, info = self.move(key, log_density(target, batch), chain, step_size, tuned.inverse_mass)
        tuned = tuning.follow(tuned, self.mass, chain.position, chain.logdensity_grad, info.acceptance, self.acceptance)
        return State(chain, tuned), info

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """When chains agree on a mass matrix and a step size."""
        return tuning.meetings(warmup)

    def report(self, state: State) -> Report:
        """What a chain has gathered."""
        return tuning.report(state.tuning)

    def meet(self, state: State, reports: Any) -> State:
        """With what all agreed on."""
        return state._replace(tuning=tuning.meet(state.tuning, self.mass, reports))

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """The step size that was found."""
        if self.step_size is not None:
            return ()
        return (f"Step size {float(traces[0].state.tuning.step_size):.3g}, tuned in warm-up.",)


def energies(chain: HMCState, momentum: Array, inverse_mass: PyTree) -> Array:
    """H = potential + kinetic energy."""
    return -chain.logdensity + kinetics.default_metric(inverse_mass).kinetic_energy(momentum)


class HMC(Tuned):
    r"""Hamiltonian Monte Carlo :cite:p:`neal2011hmc`.

    With momentum :math:`v \sim N(0, M)` the energy is :math:`H(w, v) = -\log \pi(w) + \frac12 v^\top M^{-1} v`.
    Leapfrog steps follow its flow, and the end is accepted with probability :math:`\min(1, e^{H - H'})`.
    The number of leapfrog steps is drawn anew for each trajectory, between half and one and a half of the mean, so that
    no direction returns to where it came from.

    Parameters
    ----------
    step_size
        Of a leapfrog step; None has it tuned to `acceptance`.
    acceptance
        The acceptance that the step size is tuned to.
    mass
        The family of M: `tb.mass.Diagonal`, `Dense` or `LowRank`.
    length
        Of a trajectory, in posterior standard deviations: a quarter of a turn by default.
    steps
        Leapfrog steps of every trajectory, in place of `length`.
    max_steps
        The most leapfrog steps of a trajectory.
    run
        How long.
    """

    length: float = eqx.field(default=math.pi / 2, converter=float)
    steps: int | None = None
    max_steps: int = 1000

    def move(self, key, density, chain, step_size, inverse_mass):
        """One trajectory."""
        key_length, key_move = jax.random.split(key)
        if self.steps is None:
            length = self.length * jax.random.uniform(key_length, (), minval=0.5, maxval=1.5)
            num = jnp.clip(jnp.ceil(length / step_size), 1, self.max_steps).astype(jnp.int32)
        else:
            num = jnp.asarray(self.steps, jnp.int32)
        moved, info = blackjax.hmc.build_kernel()(key_move, chain, density, step_size, inverse_mass, num)
        before = energies(chain, info.momentum, inverse_mass)
        energy = jnp.where(info.is_accepted, info.energy, before)
        return moved, Info.of(moved.logdensity, info.acceptance_rate, info.is_divergent, energy, num)


class NUTS(Tuned):
    r"""The no-U-turn sampler :cite:p:`hoffman2014nuts` :cite:p:`betancourt2017conceptual`.

    A trajectory of Hamiltonian dynamics is doubled until it turns back on itself; the next draw is one of its points,
    chosen in proportion to its density.

    Parameters
    ----------
    step_size, acceptance, mass, run
        As for `HMC`.
    max_depth
        The most doublings of a trajectory.
    """

    max_depth: int = eqx.field(static=True, default=10)

    def move(self, key, density, chain, step_size, inverse_mass):
        """One trajectory."""
        kernel = blackjax.nuts.build_kernel()
        moved, info = kernel(key, chain, density, step_size, inverse_mass, self.max_depth)
        num = info.num_integration_steps
        return moved, Info.of(moved.logdensity, info.acceptance_rate, info.is_divergent, info.energy, num)
