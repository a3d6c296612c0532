"""Prior scales, and noise, by the exact evidence of the last layer."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize

from tunbridge.core.tree import ravel, size, unravel
from tunbridge.core.types import Params, PyTree, Scalar
from tunbridge.inference.linear import conjugate, features
from tunbridge.inference.linear.conjugate import Family
from tunbridge.inference.linear.moments import Moments, Solved, solve
from tunbridge.model.model import Model

_REACH = float(np.log(1e3))
"""How far tuning may move an unknown on the real line: a factor of 1,000 of a positive one."""


class Beliefs(NamedTuple):
    """What the model says of the last layer at some scales and noise."""

    log_variances: Array
    """Of the prior, (features, outputs)."""
    log_noise: Array
    """The log variance of the noise: one, or one per output."""
    log_hyper: Scalar
    """The log densities of what is unknown."""

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Variances of the prior and of the noise, in float64."""
        return np.exp(np.asarray(self.log_variances, np.float64)), np.exp(np.asarray(self.log_noise, np.float64))


def _beliefs(model: Model, weights: PyTree, scales: PyTree, noise: PyTree) -> Beliefs:
    raw = model.prior.raw(weights, scales, model.network.layout(weights))
    variances = features.prior_variances(model, Params(raw, scales, noise))
    hyper = model.prior.log_hyper(scales, jacobian=False) + model.likelihood.log_noise(noise, jacobian=False)
    return Beliefs(jnp.log(variances), jnp.log(conjugate.variances(model.likelihood, noise)), hyper)


beliefs = jax.jit(_beliefs)


@jax.jit
def _pulled(model: Model, weights: PyTree, scales: PyTree, noise: PyTree, slope: Beliefs) -> tuple[PyTree, PyTree]:
    """The gradient by scales and noise, from that by the beliefs."""
    return jax.vjp(lambda s, z: _beliefs(model, weights, s, z), scales, noise)[1](slope)


def condition(family: Family, moments: Moments, variances: np.ndarray, noise: np.ndarray) -> Solved:
    """Weights given sums over rows."""
    return solve(moments, family.unit(noise)[None] / variances)


class Tuned(NamedTuple):
    """Where the evidence, with the priors of what is unknown, is largest."""

    scales: PyTree
    noise: PyTree
    num: int
    """How many unknowns were free."""
    at_bound: int
    """How many of them ended a factor of 1,000 from where they began."""


def maximise(family: Family, model: Model, params: Params, moments: Moments, *, free_noise: bool) -> Tuned:
    """Prior scales on which the last layer depends, and noise if it is free, by L-BFGS on the real line.

    In float64 throughout: the optimiser compares values near the optimum.
    """
    weights, like = model.weights(params), (params.scales, params.noise)
    free = _free(model, weights, params, free_noise)
    first = np.asarray(ravel(like), np.float64)
    if not free.any():
        return Tuned(*like, 0, 0)

    def at(values: np.ndarray) -> tuple[PyTree, PyTree]:
        whole = first.copy()
        whole[free] = values
        return unravel(like, jnp.asarray(whole))

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        scales, noise = at(values)
        found = beliefs(model, weights, scales, noise)
        value, slope = _objective(family, moments, found)
        pulled = ravel(_pulled(model, weights, scales, noise, slope))
        return -value, -np.asarray(pulled, np.float64)[free]

    bounds = [(u - _REACH, u + _REACH) for u in first[free]]
    with jax.enable_x64(True):
        found = minimize(loss, first[free], jac=True, method="L-BFGS-B", bounds=bounds)
    moved = np.abs(found.x - first[free])
    return Tuned(*at(found.x), int(free.sum()), int((moved >= 0.999 * _REACH).sum()))


def _objective(family: Family, moments: Moments, found: Beliefs) -> tuple[float, Beliefs]:
    """Log evidence plus the log densities of the unknowns, and its gradient by the beliefs."""
    variances, noise = found.numbers()
    solved = condition(family, moments, variances, noise)
    value = family.log_evidence(moments, solved, noise) + float(found.log_hyper)
    penalty = family.unit(noise)[None] / variances
    precision = family.precision(moments, solved, noise)
    by_penalty = 0.5 * (1.0 - penalty * (solved.diagonal + precision[None] * solved.mean**2))
    by_noise = 0.5 * (solved.least * precision - moments.num) + by_penalty.sum(axis=0)
    by_noise = by_noise.reshape(len(noise), -1).sum(axis=1) * (not family.integrates)
    parts = (-by_penalty, by_noise, 1.0)
    return value, Beliefs(*(jnp.asarray(part, like.dtype) for part, like in zip(parts, found, strict=True)))


def _free(model: Model, weights: PyTree, params: Params, free_noise: bool) -> np.ndarray:
    """Which unknowns are tuned: scales that the last layer's variances depend on, and noise if it is free."""
    found = jax.eval_shape(beliefs, model, weights, params.scales, params.noise)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), found)
    some = np.random.default_rng(0).normal(size=found.log_variances.shape)
    slope = nothing._replace(log_variances=jnp.asarray(some, found.log_variances.dtype))
    scales, noise = _pulled(model, weights, params.scales, params.noise, slope)
    moving = np.asarray(ravel(scales)) != 0.0
    return np.concatenate([moving, np.full(size(noise), free_noise)])
