"""The first state and one step of a stochastic-gradient sampler, assembled from the parts that the sampler holds."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.errors import Result
from tunbridge.core.random import normal
from tunbridge.core.tree import ravel
from tunbridge.core.types import Key, Params
from tunbridge.inference import scales
from tunbridge.inference.sampler import Info, shapes
from tunbridge.inference.sgmcmc import temperature
from tunbridge.inference.sgmcmc.corrections import Proposal
from tunbridge.inference.sgmcmc.preconditioners import Identity, shaken, times
from tunbridge.inference.sgmcmc.splittings import Motion, Push
from tunbridge.inference.sgmcmc.state import DynamicsState
from tunbridge.inference.sgmcmc.steps import FirstStep
from tunbridge.inference.sgmcmc.subsampling import Estimate
from tunbridge.model.model import Target

if TYPE_CHECKING:
    from tunbridge.inference.sgmcmc.sampler import StochasticGradient


def begin(
    sampler: "StochasticGradient", key: Key, target: Target, params: Params, batch: Data, warmup: Array
) -> DynamicsState:
    """Return the first state: momentum at rest, and a first measurement where the step size is to be measured."""
    key_prior, key_curvature = jax.random.split(key)
    position = ravel(params)
    zeros, ones, none = jnp.zeros_like(position), jnp.ones_like(position), jnp.zeros((), jnp.int32)
    anchor = sampler.gradient.begin(target, position)
    gradient = sampler.gradient.estimate(target, anchor, position, batch).gradient
    variance = ones
    if sampler.step_size is None or not isinstance(sampler.metric, Identity):
        variance = scales.prior_variance(key_prior, target, batch)
    memory = sampler.metric.begin(shapes(target.model), gradient, variance)
    motion = Motion(position, zeros, jnp.asarray(sampler.damping, position.dtype), ones[0])
    noise = sampler.gradient_noise.begin(position)
    state = DynamicsState(motion, memory, anchor, (), noise, ones, none, jnp.asarray(warmup, jnp.int32))
    return sampler.steps.begin(sampler, state, FirstStep(key_curvature, target, batch, variance, gradient))


def step(
    sampler: "StochasticGradient", key: Key, target: Target, state: DynamicsState, batch: Data
) -> tuple[DynamicsState, Info]:
    """Return the state after one step: a gradient from a batch, and a move along it with noise."""
    anchor = sampler.gradient.follow(target, state.anchor, state.position, state.step)
    estimate, noise = sampler.gradient_noise.estimate(sampler.gradient, target, anchor, state, batch)
    adapts = sampler.steps.adapts(state)
    memory = sampler.metric.follow(state.metric, estimate.gradient, adapts)
    pace = sampler.schedule.at(jnp.maximum(state.step - state.warmup, 0))
    metric, tuned, step_size = sampler.steps.stride(sampler, state, memory, estimate.gradient, pace.step)
    shake = shaken(metric, normal(key, state.position.shape, state.position.dtype))
    own_noise = sampler.gradient_noise.brought(noise, step_size, metric, sampler.cancellation.momentum)
    injected = jnp.maximum(2.0 * sampler.steps.damping(sampler, state) - own_noise, 0.0)
    push = Push(estimate.gradient, step_size, metric, (sampler.noise * pace.noise) * shake, injected)
    motion, log_density, acceptance = _advance(sampler, key, target, state, batch, push, estimate)
    motion, tuned = sampler.steps.answer(sampler, state, motion, tuned, acceptance)
    energy = motion.step_size * motion.momentum * times(metric, motion.momentum)
    unit = 1.0 if sampler.correction else sampler.splitting.unit(motion.friction)
    heat = temperature.follow(state.heat, energy / unit)
    fresh = DynamicsState(motion, memory, anchor, tuned, noise, heat, state.step + 1, state.warmup)
    fresh, log_density = sampler.steps.rescue(sampler, fresh, log_density)
    cost = batch.num / target.num if sampler.correction is None else sampler.correction.price(target, batch)
    nan, false = jnp.full_like(log_density, jnp.nan), jnp.asarray(False)
    return fresh, Info.of(log_density, acceptance, false, nan, cost, Result.DIVERGED)


def _advance(
    sampler: "StochasticGradient",
    key: Key,
    target: Target,
    state: DynamicsState,
    batch: Data,
    push: Push,
    estimate: Estimate,
) -> Proposal:
    """Return the motion after one uncorrected step, or after a corrected path."""
    correction = sampler.correction

    def plain() -> Proposal:
        nan = jnp.full_like(estimate.log_density, jnp.nan)
        return Proposal(sampler.splitting.advance(state.motion, push), estimate.log_density, nan)

    if correction is None:
        return plain()

    def corrected() -> Proposal:
        size, metric = push.step_size, push.metric
        return correction.propose(key, target, sampler.gradient, state.motion, batch, size, metric)

    return sampler.steps.either(state, plain, corrected)
