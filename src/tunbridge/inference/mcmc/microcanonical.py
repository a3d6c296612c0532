"""Microcanonical Langevin Monte Carlo: dynamics at a fixed energy, with and without a Metropolis correction."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.adaptation.mass_matrix import WelfordAlgorithmState, welford_algorithm
from blackjax.mcmc import adjusted_mclmc, mclmc
from blackjax.mcmc.integrators import IntegratorState
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.random import split
from tunbridge.core.tree import ravel
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference import scales
from tunbridge.inference.mcmc import tuning
from tunbridge.inference.mcmc.adaptive import Adaptive
from tunbridge.inference.mcmc.mass import Diagonal
from tunbridge.inference.promises import Promises
from tunbridge.inference.sampler import Info, Sampler, log_density
from tunbridge.model.model import Target
from tunbridge.runtime.durations import Run
from tunbridge.runtime.loop import Trace

_MEMORY = 149.0 / 151.0
"""Decay, at each step, of the statistics that the step size is computed from: a memory of about 150 steps."""
_TRUST = 1.5
_ROUNDING = 32.0
"""Energy errors up to this many units in the last place are rounding: far from the mode the energy is large."""
_MOST_CHANGE = 1.5
"""Largest factor by which the step size changes in one step."""
_ORDER = 6.0
"""The variance of the energy error grows with this power of the step size."""
_BATCHES = 20
"""Number of batches into which a window of warm-up is cut to measure autocorrelation."""
_WINDOW = 0.4
"""Length of the window before the last meeting but one, as a share of warm-up."""
_REFRESH = 0.4
"""L, the momentum decoherence length, as a share of the autocorrelation length."""


class Errors(NamedTuple):
    """Running statistics of the energy errors, from which the step size is computed."""

    weight: Array
    ratio: Array
    """Weighted sum of squared errors over their target variance, rescaled to the current step size."""
    most: Array
    """A step size above which steps have failed."""

    def step_size(self, current: Array) -> tuple[Array, "Errors"]:
        """Step size whose energy errors have the target variance, and the statistics rescaled to it."""
        known = self.weight > 0
        factor = jnp.where(known, jnp.where(known, self.ratio / self.weight, 1.0) ** (-1.0 / _ORDER), 1.0)
        factor = jnp.clip(factor, 1.0 / _MOST_CHANGE, _MOST_CHANGE)
        new = jnp.minimum(factor * current, self.most)
        return new, self._replace(ratio=self.ratio * (new / current) ** _ORDER)


class Batches(NamedTuple):
    """Means of consecutive batches of positions: their variance measures the autocorrelation of the chain."""

    total: Array
    num: Array
    means: WelfordAlgorithmState


class MCLMCState(NamedTuple):
    """State of a chain: the kernel's state, what is tuned, and the statistics of warm-up."""

    chain: IntegratorState
    step_size: Array
    length: Array
    """L, the momentum decoherence length, in posterior standard deviations."""
    inverse_mass: Array
    errors: Errors
    gathered: PyTree
    batches: Batches
    batch: Array
    """Steps per batch."""
    left: Array
    """Number of meetings still to come."""

    @property
    def position(self) -> Array:
        """All unknowns in one vector."""
        return self.chain.position


class Report(NamedTuple):
    """What a chain contributes to a meeting."""

    step_size: Array
    gathered: PyTree
    means: WelfordAlgorithmState


class MCLMC(Sampler):
    r"""Microcanonical Langevin Monte Carlo, unadjusted :cite:p:`robnik2023microcanonical`.

    The velocity keeps its length and turns towards higher density, with some noise,

    .. math::

        \dot w = u, \qquad
        \dot u = (1 - u u^\top) \Big( \frac{\nabla \log \pi(w)}{d - 1} \, dt + \eta \, dW \Big),

    so that w wanders through the posterior. There is no rejection: the discretisation error remains as a bias, which
    shrinks with the variance of the energy error. All chains share one step size, one mass matrix and one L, agreed on
    in warm-up: with step sizes of their own, unadjusted chains would each have a different bias.

    Parameters
    ----------
    step_size
        Step size, in posterior standard deviations times the square root of the number of unknowns; None tunes it.
    energy_variance
        Variance of the energy error, per dimension, that the step size is tuned to.
    length
        L, the momentum decoherence length; None tunes it to the autocorrelation.
    run
        Length of the run. A step costs two gradients: keep one of several.
    """

    promises: ClassVar[Promises] = {
        "linear": ("biased", 0.2),
        "linear_unknown": ("biased", 0.25),
        "logistic": ("biased", 0.2),
        "tanh_unit": ("biased", 0.4),
    }

    step_size: float | None = None
    energy_variance: float = eqx.field(default=5e-4, converter=float)
    length: float | None = None
    run: Run = Run(warmup=4000, draws=1000, thin=10)

    def __check_init__(self):
        for name in ("step_size", "energy_variance", "length"):
            number = getattr(self, name)
            if number is not None and not number > 0:
                raise InputError(f"{name} above 0", f"{number}", "Leave it out to have it tuned.")

    @property
    def gradients_per_step(self) -> int | None:
        """Two gradients per step."""
        return 2

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> MCLMCState:
        """Initial state: a random direction, and a step size from the curvature at the start."""
        key_prior, key_curvature, key_momentum = jax.random.split(key, 3)
        density, position = log_density(target, batch), ravel(params)
        num = position.shape[0]
        if num < 2:
            raise InputError("at least 2 unknowns", f"{num}", "Use tb.NUTS(): fixed energy needs two dimensions.")
        chain = mclmc.init(position, density, key_momentum)
        variance = scales.prior_variance(key_prior, target, batch)
        curvature = scales.curvature(key_curvature, jax.grad(density), position, variance)
        root = jnp.sqrt(jnp.asarray(num, position.dtype))
        step_size = 0.5 * root / jnp.sqrt(curvature) if self.step_size is None else self.step_size
        size = jnp.maximum(warmup * _WINDOW / _BATCHES, 1.0)
        return MCLMCState(
            chain,
            jnp.asarray(step_size, position.dtype),
            jnp.asarray(root if self.length is None else self.length, position.dtype),
            variance,
            _no_errors(position.dtype),
            Diagonal().nothing(num),
            Batches(jnp.zeros_like(position), jnp.zeros((), jnp.int32), welford_algorithm(True)[0](num)),
            size.astype(jnp.int32),
            jnp.where(warmup > 0, tuning.NUM_MEETINGS, 0).astype(jnp.int32),
        )

    def step(self, key: Key, target: Target, state: MCLMCState, batch: Data) -> tuple[MCLMCState, Info]:
        """Make one step and, in warm-up, update the tuning."""
        kernel, density = mclmc.build_kernel(), log_density(target, batch)
        chain, kernel_info = kernel(key, state.chain, density, state.inverse_mass, state.length, state.step_size)
        nan = jnp.full_like(chain.logdensity, jnp.nan)
        info = Info.of(chain.logdensity, nan, ~kernel_info.nonans, nan, 2)
        state = jax.lax.cond(
            state.left > 0,
            lambda: self._learn(state._replace(chain=chain), kernel_info),
            lambda: state._replace(chain=chain),
        )
        return state, info

    def _learn(self, state: MCLMCState, kernel_info: mclmc.MCLMCInfo) -> MCLMCState:
        num, position = state.position.shape[0], state.position
        rounding = _ROUNDING * jnp.finfo(position.dtype).eps * kernel_info.logdensity
        squared = jnp.maximum(kernel_info.energy_change**2 - rounding**2, 0.0)
        xi = squared / (num * self.energy_variance) + 1e-8
        trust = jnp.exp(-0.5 * (jnp.log(xi) / (_ORDER * _TRUST)) ** 2)
        weight, ratio, most = state.errors
        errors = Errors(
            jnp.where(kernel_info.nonans, _MEMORY * weight + trust, weight),
            jnp.where(kernel_info.nonans, _MEMORY * ratio + trust * xi, ratio),
            jnp.where(kernel_info.nonans, most, 0.8 * state.step_size),
        )
        step_size = state.step_size
        if self.step_size is None:
            step_size, errors = errors.step_size(step_size)
        return state._replace(
            step_size=step_size,
            errors=errors,
            gathered=Diagonal().add(state.gathered, position, state.chain.logdensity_grad),
            batches=_batched(state.batches, position, state.batch),
        )

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """Steps of warm-up after which chains agree on a mass matrix, a step size and L."""
        return tuning.meetings(warmup)

    def report(self, state: MCLMCState) -> Report:
        """What a chain contributes to a meeting: its step size and the statistics of its draws."""
        return Report(state.step_size, state.gathered, state.batches.means)

    def meet(self, key: Key, target: Target, state: MCLMCState, batch: Data, reports: Report) -> MCLMCState:
        """State with one mass matrix, one step size and one L for all chains."""
        learns, measures = tuning.learns(state.left), state.left == 2
        step_size = jnp.exp(jnp.median(jnp.log(reports.step_size)))
        variance = Diagonal().estimate(reports.gathered, state.inverse_mass)
        length = state.length
        if self.length is None:
            autocorrelation = _autocorrelation(reports, state.batch)
            length = jnp.where(measures, _REFRESH * step_size * autocorrelation, length)
        zeros = jax.tree.map(jnp.zeros_like, (state.gathered, state.batches))
        return state._replace(
            step_size=step_size,
            length=length,
            inverse_mass=jnp.where(learns, variance, state.inverse_mass),
            errors=_no_errors(step_size.dtype),
            gathered=zeros[0],
            batches=zeros[1],
            left=state.left - 1,
        )

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """The step size and L in use."""
        state = traces[0].state
        return (f"Step size {float(state.step_size):.3g}, L {float(state.length):.3g}, shared by all chains.",)


def _no_errors(dtype: Any) -> Errors:
    return Errors(jnp.zeros((), dtype), jnp.zeros((), dtype), jnp.full((), jnp.inf, dtype))


def _batched(batches: Batches, position: Array, size: Array) -> Batches:
    total, count = batches.total + position, batches.num + 1
    ends = count >= size
    means = jax.lax.cond(ends, lambda: welford_algorithm(True)[1](batches.means, total / count), lambda: batches.means)
    return Batches(jnp.where(ends, 0.0, total), jnp.where(ends, 0, count), means)


def _autocorrelation(reports: Report, size: Array) -> Array:
    """Autocorrelation time in steps, averaged over unknowns: batch size x variance of batch means / variance."""
    between = jnp.sum(reports.means.m2, axis=0) / jnp.maximum(jnp.sum(reports.means.sample_size - 1), 1)
    within = jnp.sum(reports.gathered.m2, axis=0) / jnp.maximum(jnp.sum(reports.gathered.sample_size - 1), 1)
    ratio = size * between / jnp.where(within > 0, within, jnp.inf)
    return jnp.maximum(jnp.mean(ratio), 1.0)


class AdjustedMCLMC(Adaptive):
    r"""Microcanonical dynamics with a Metropolis correction :cite:p:`robnik2023microcanonical`.

    Trajectories at fixed energy start in a random direction and are accepted by their energy error: exact, at the cost
    of smaller steps than `MCLMC` takes. The number of steps is drawn anew for each trajectory.

    Parameters
    ----------
    step_size
        Step size, in posterior standard deviations times the square root of the number of unknowns; None tunes it to
        `acceptance`.
    acceptance
        Acceptance rate that the step size is tuned to.
    mass
        `tb.mass.Diagonal`, or `LowRank`.
    length
        Length of a trajectory, in posterior standard deviations of one unknown: about a quarter period by default.
    max_steps
        Largest number of steps of a trajectory.
    run
        Length of the run.
    """

    promises: ClassVar[Promises] = {
        "linear": ("exact", 0.12),
        "linear_unknown": ("exact", 0.15),
        "logistic": ("exact", 0.12),
        "tanh_unit": ("exact", 0.25),
    }

    acceptance: float = eqx.field(default=0.9, converter=float)
    length: float = eqx.field(default=1.5, converter=float)
    max_steps: int = 1000

    @property
    def gradients_per_step(self) -> int | None:
        """None, as trajectories differ in their number of steps."""
        return None

    def move(self, key, density, chain, step_size, inverse_mass):
        """Return the chain after one trajectory, and its `Info`."""
        key_length, key_move = split(key, 2)
        root = jnp.sqrt(jnp.asarray(chain.position.shape[0], step_size.dtype))
        length = self.length * jax.random.uniform(key_length, (), minval=0.5, maxval=1.5)
        num = jnp.clip(jnp.ceil(length / step_size), 1, self.max_steps).astype(jnp.int32)
        kernel = adjusted_mclmc.build_kernel()
        moved, info = kernel(key_move, chain, density, step_size * root, (num,), inverse_mass)
        nan = jnp.full_like(moved.logdensity, jnp.nan)
        return moved, Info.of(moved.logdensity, info.acceptance_rate, info.is_divergent, nan, 2 * num)
