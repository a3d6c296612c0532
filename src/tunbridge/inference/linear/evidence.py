"""Tuning of prior scales and noise by the exact evidence of the last layer."""

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
"""How far tuning may move an unknown on the real line: for a positive one, by a factor of 1,000."""


class Beliefs(NamedTuple):
    """Prior variances of the last layer and the noise variance, at some scales and noise."""

    log_variances: Array
    """Log prior variances, (features, outputs)."""
    log_noise: Array
    """The log variance of the noise: one, or one per output."""
    log_hyper: Scalar
    """Log prior density of the unknown scales and noise."""

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the variances of the prior and of the noise, in float64."""
        return np.exp(np.asarray(self.log_variances, np.float64)), np.exp(np.asarray(self.log_noise, np.float64))


def _beliefs(model: Model, weights: PyTree, scales: PyTree, noise: PyTree) -> Beliefs:
    raw = model.prior.raw(weights, scales, model.network.layout(weights))
    variances = features.prior_variances(model, Params(raw, scales, noise))
    hyper = model.prior.log_hyper(scales, jacobian=False) + model.likelihood.log_noise(noise, jacobian=False)
    return Beliefs(jnp.log(variances), jnp.log(conjugate.variances(model.likelihood, noise)), hyper)


beliefs = jax.jit(_beliefs)


@jax.jit
def _pulled(model: Model, weights: PyTree, scales: PyTree, noise: PyTree, gradient: Beliefs) -> tuple[PyTree, PyTree]:
    """The gradient with respect to scales and noise, from that with respect to the beliefs."""
    return jax.vjp(lambda s, z: _beliefs(model, weights, s, z), scales, noise)[1](gradient)


def condition(family: Family, moments: Moments, variances: np.ndarray, noise: np.ndarray) -> Solved:
    """Return the posterior of the weights, given sums over rows."""
    return solve(moments, family.unit(noise)[None] / variances)


class Tuned(NamedTuple):
    """The scales and noise that maximise the evidence times their prior density."""

    scales: PyTree
    noise: PyTree
    num: int
    """Number of unknowns that were tuned."""
    at_bound: int
    """Number of them that ended at the bound, a factor of 1,000 from their start."""


def maximise(family: Family, model: Model, params: Params, moments: Moments, *, free_noise: bool) -> Tuned:
    """Tune the prior scales that the last layer depends on, and noise if it is free, by L-BFGS on the real line.

    All in float64, because the optimiser compares values close to the optimum.
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
        believed = beliefs(model, weights, scales, noise)
        value, gradient = _objective(family, moments, believed)
        pulled = ravel(_pulled(model, weights, scales, noise, gradient))
        return -value, -np.asarray(pulled, np.float64)[free]

    bounds = [(u - _REACH, u + _REACH) for u in first[free]]
    with jax.enable_x64(True):
        optimum = minimize(loss, first[free], jac=True, method="L-BFGS-B", bounds=bounds)
    moved = np.abs(optimum.x - first[free])
    return Tuned(*at(optimum.x), int(free.sum()), int((moved >= 0.999 * _REACH).sum()))


def _objective(family: Family, moments: Moments, believed: Beliefs) -> tuple[float, Beliefs]:
    """Log evidence plus the log prior density of the unknowns, and its gradient with respect to the beliefs."""
    variances, noise = believed.numbers()
    solved = condition(family, moments, variances, noise)
    value = family.log_evidence(moments, solved, noise) + float(believed.log_hyper)
    penalty = family.unit(noise)[None] / variances
    precision = family.precision(moments, solved, noise)
    by_penalty = 0.5 * (1.0 - penalty * (solved.diagonal + precision[None] * solved.mean**2))
    by_noise = 0.5 * (solved.least * precision - moments.num) + by_penalty.sum(axis=0)
    by_noise = by_noise.reshape(len(noise), -1).sum(axis=1) * (not family.integrates)
    parts = (-by_penalty, by_noise, 1.0)
    return value, Beliefs(*(jnp.asarray(part, like.dtype) for part, like in zip(parts, believed, strict=True)))


def _free(model: Model, weights: PyTree, params: Params, free_noise: bool) -> np.ndarray:
    """Mask of the tuned unknowns: scales that the last layer's prior variances depend on, and noise if it is free."""
    believed = jax.eval_shape(beliefs, model, weights, params.scales, params.noise)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), believed)
    direction = np.random.default_rng(0).normal(size=believed.log_variances.shape)
    gradient = nothing._replace(log_variances=jnp.asarray(direction, believed.log_variances.dtype))
    scales, noise = _pulled(model, weights, params.scales, params.noise, gradient)
    moving = np.asarray(ravel(scales)) != 0.0
    return np.concatenate([moving, np.full(size(noise), free_noise)])
