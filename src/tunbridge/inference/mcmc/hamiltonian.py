"""Hamiltonian Monte Carlo with trajectories of given length, and the no-U-turn sampler."""

import math
from typing import ClassVar

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.mcmc import metrics as kinetics
from blackjax.mcmc.hmc import HMCState
from jax import Array

from tunbridge.core.random import split
from tunbridge.core.types import PyTree
from tunbridge.inference.mcmc.adaptive import Adaptive
from tunbridge.inference.promises import Promises
from tunbridge.inference.sampler import Info


def energies(chain: HMCState, momentum: Array, inverse_mass: PyTree) -> Array:
    """H = potential + kinetic energy, at a chain's position with this momentum."""
    return -chain.logdensity + kinetics.default_metric(inverse_mass).kinetic_energy(momentum)


class HMC(Adaptive):
    r"""Hamiltonian Monte Carlo :cite:p:`neal2011hmc`.

    With momentum :math:`v \sim N(0, M)` the energy is :math:`H(w, v) = -\log \pi(w) + \frac12 v^\top M^{-1} v`.
    Leapfrog steps follow its flow, and the end point is accepted with probability :math:`\min(1, e^{H - H'})`.
    The number of leapfrog steps is drawn anew for each trajectory, between 0.5 and 1.5 times its mean, so that
    trajectories are periodic in no direction.

    Parameters
    ----------
    step_size
        Leapfrog step size; None tunes it to `acceptance`.
    acceptance
        Acceptance rate that the step size is tuned to.
    mass
        Family of M: `tb.mass.Diagonal`, `Dense` or `LowRank`.
    length
        Length of a trajectory, in posterior standard deviations: a quarter period by default.
    steps
        Number of leapfrog steps of every trajectory, in place of `length`.
    max_steps
        Largest number of leapfrog steps of a trajectory.
    run
        Length of the run.
    """

    promises: ClassVar[Promises] = {
        "linear": ("exact", 0.12),
        "linear_unknown": ("exact", 0.12),
        "logistic": ("exact", 0.12),
        "tanh_unit": ("exact", 0.25),
    }

    acceptance: float = eqx.field(default=0.9, converter=float)
    length: float = eqx.field(default=math.pi / 2, converter=float)
    steps: int | None = None
    max_steps: int = 1000

    @property
    def gradients_per_step(self) -> int | None:
        """None, as trajectories differ in their number of steps."""
        return None

    def move(self, key, density, chain, step_size, inverse_mass):
        """Return the chain after one trajectory, and its `Info`."""
        key_length, key_move = split(key, 2)
        if self.steps is None:
            length = self.length * jax.random.uniform(key_length, (), minval=0.5, maxval=1.5)
            num = jnp.clip(jnp.ceil(length / step_size), 1, self.max_steps).astype(jnp.int32)
        else:
            num = jnp.asarray(self.steps, jnp.int32)
        moved, info = blackjax.hmc.build_kernel()(key_move, chain, density, step_size, inverse_mass, num)
        before = energies(chain, info.momentum, inverse_mass)
        energy = jnp.where(info.is_accepted, info.energy, before)
        return moved, Info.of(moved.logdensity, info.acceptance_rate, info.is_divergent, energy, num)


class NUTS(Adaptive):
    r"""The no-U-turn sampler :cite:p:`hoffman2014nuts` :cite:p:`betancourt2017conceptual`.

    A trajectory of Hamiltonian dynamics is doubled until it turns back on itself; the next draw is one of its points,
    chosen in proportion to its density.

    Parameters
    ----------
    step_size, acceptance, mass, run
        As for `HMC`.
    max_depth
        Largest number of doublings of a trajectory.
    """

    promises: ClassVar[Promises] = {
        "linear": ("exact", 0.12),
        "linear_unknown": ("exact", 0.15),
        "logistic": ("exact", 0.12),
        "tanh_unit": ("exact", 0.25),
    }

    acceptance: float = eqx.field(default=0.9, converter=float)
    max_depth: int = eqx.field(static=True, default=10)

    @property
    def gradients_per_step(self) -> int | None:
        """None, as trajectories differ in their number of steps."""
        return None

    def move(self, key, density, chain, step_size, inverse_mass):
        """Return the chain after one trajectory, and its `Info`."""
        kernel = blackjax.nuts.build_kernel()
        moved, info = kernel(key, chain, density, step_size, inverse_mass, self.max_depth)
        num = info.num_integration_steps
        return moved, Info.of(moved.logdensity, info.acceptance_rate, info.is_divergent, info.energy, num)
