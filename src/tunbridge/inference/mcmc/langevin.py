"""Langevin steps: one gradient plus noise, with and without a Metropolis correction."""

from typing import ClassVar, NamedTuple

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.mcmc import metrics as kinetics
from blackjax.mcmc.hmc import HMCState
from jax import Array

from tunbridge.core.random import split
from tunbridge.core.types import Key, PyTree
from tunbridge.inference.mcmc.adaptive import Adaptive, Density
from tunbridge.inference.promises import Promises
from tunbridge.inference.sampler import Info
from tunbridge.runtime.durations import Run
from tunbridge.runtime.loop import Trace


class Step(NamedTuple):
    """A Langevin step, and its Metropolis-Hastings acceptance probability."""

    chain: HMCState
    acceptance: Array


def langevin(key: Key, density: Density, chain: HMCState, step_size: Array, inverse_mass: PyTree) -> Step:
    r"""Langevin step from w to w', and its Metropolis-Hastings acceptance probability.

    :math:`w' = w + \frac{\epsilon^2}{2} M^{-1} \nabla \log \pi(w) + \epsilon M^{-1} p`, with p drawn from N(0, M).
    The step back, from w' to w, takes :math:`-p'` in place of p, where

    .. math::

        p' = p + \tfrac\epsilon2 \big(\nabla \log \pi(w) + \nabla \log \pi(w')\big), \qquad
        \log \frac{q(w \mid w')}{q(w' \mid w)} = \tfrac12 p^\top M^{-1} p - \tfrac12 p'^\top M^{-1} p'.
    """
    metric = kinetics.default_metric(inverse_mass)
    kinetic = metric.kinetic_energy
    noise = metric.sample_momentum(key, chain.position)
    half = 0.5 * step_size
    position = chain.position + step_size * jax.grad(kinetic)(noise + half * chain.logdensity_grad)
    moved = blackjax.hmc.init(position, density)
    back = noise + half * (chain.logdensity_grad + moved.logdensity_grad)
    log_ratio = moved.logdensity - chain.logdensity + kinetic(noise) - kinetic(back)
    return Step(moved, jnp.exp(jnp.minimum(jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio), 0.0)))


def adjusted(
    key: Key, density: Density, chain: HMCState, step_size: Array, inverse_mass: PyTree
) -> tuple[HMCState, Info]:
    """Return the chain after a Langevin step if that is accepted, else unchanged, and its `Info`."""
    key_noise, key_accept = split(key, 2)
    step = langevin(key_noise, density, chain, step_size, inverse_mass)
    accepted = jax.random.uniform(key_accept, (), step.acceptance.dtype) < step.acceptance
    moved = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), step.chain, chain)
    return moved, _info(moved, step)


def _info(chain: HMCState, step: Step) -> Info:
    nan = jnp.full_like(chain.logdensity, jnp.nan)
    return Info.of(chain.logdensity, step.acceptance, ~jnp.isfinite(step.chain.logdensity), nan, 1)


class MALA(Adaptive):
    r"""The Metropolis-adjusted Langevin algorithm :cite:p:`roberts1996exponential`.

    .. math::

        w' = w + \tfrac{\epsilon^2}{2} M^{-1} \nabla \log \pi(w) + \epsilon M^{-1/2} z

    is proposed, and accepted by the Metropolis-Hastings rule. It is `HMC` with one leapfrog step.

    Parameters
    ----------
    step_size
        :math:`\epsilon`, in posterior standard deviations; None tunes it to `acceptance`.
    acceptance
        Acceptance rate that the step size is tuned to :cite:p:`roberts2001optimal`.
    mass
        Family of M: `tb.mass.Diagonal`, `Dense` or `LowRank`.
    run
        Length of the run. A step costs one gradient: keep one of several.
    """

    promises: ClassVar[Promises] = {  # a chain may stay long in the narrow tails of the tanh unit
        "linear": ("exact", 0.12),
        "linear_unknown": ("exact", 0.25),
        "logistic": ("exact", 0.12),
        "tanh_unit": ("exact", 0.4),
    }

    acceptance: float = eqx.field(default=0.574, converter=float)
    run: Run = Run(warmup=4000, draws=1000, thin=20)

    @property
    def gradients_per_step(self) -> int | None:
        """One gradient per step."""
        return 1

    def move(self, key, density, chain, step_size, inverse_mass):
        """Return the chain after one step, accepted or not, and its `Info`."""
        return adjusted(key, density, chain, step_size, inverse_mass)


class ULA(Adaptive):
    r"""The unadjusted Langevin algorithm :cite:p:`roberts1996exponential`: every step is taken.

    .. math::

        w' = w + \tfrac{\epsilon^2}{2} M^{-1} \nabla \log \pi(w) + \epsilon M^{-1/2} z

    The discretisation error remains as a bias, which shrinks with :math:`\epsilon^2`: for the target N(0, 1) it samples
    N(0, :math:`1 / (1 - \epsilon^2 / 4)`). In the convention of a drift :math:`h \nabla \log \pi` and noise
    :math:`\sqrt{2h} \, z`, where :math:`h = \epsilon^2 / 2`, that is :math:`1 / (1 - h / 2)`. With too large a step
    size the chain diverges, and the run ends with an error. In warm-up, steps are accepted or rejected as in `MALA`,
    so that no chain diverges while the step size is tuned.

    Parameters
    ----------
    step_size
        :math:`\epsilon`, in posterior standard deviations; None tunes it to `acceptance`.
    acceptance
        Acceptance rate that a Metropolis correction would have, to which the step size is tuned: the nearer to 1, the
        smaller the bias.
    mass
        Family of M: `tb.mass.Diagonal`, `Dense` or `LowRank`.
    run
        Length of the run. A step costs one gradient: keep one of several.
    """

    promises: ClassVar[Promises] = {
        "linear": ("biased", 0.2),
        "linear_unknown": ("biased", 0.25),
        "logistic": ("biased", 0.2),
        "tanh_unit": ("biased", 0.3),
    }

    acceptance: float = eqx.field(default=0.95, converter=float)
    run: Run = Run(warmup=2000, draws=1000, thin=20)

    @property
    def gradients_per_step(self) -> int | None:
        """One gradient per step."""
        return 1

    def move(self, key, density, chain, step_size, inverse_mass):
        """Return the chain after one step, and its `Info`."""
        step = langevin(key, density, chain, step_size, inverse_mass)
        return step.chain, _info(step.chain, step)

    def transition(self, key, density, state, step_size):
        """Return the chain after one step, in warm-up one of `MALA`, and its `Info`."""

        def take(move):
            return lambda: move(key, density, state.chain, step_size, state.tuning.inverse_mass)

        return jax.lax.cond(state.tuning.left > 0, take(adjusted), take(self.move))

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """The tuned step size, and that the draws are biased by it."""
        return (*super().notes(traces), "Biased by its step size: no step was rejected.")
