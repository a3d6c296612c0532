"""The initial q: means at weights that fit, standard deviations from the curvature there."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.compiling import once
from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params
from tunbridge.inference.posteriors import Posterior
from tunbridge.model.model import Model, Target
from tunbridge.model.spread import prior_variances

_NUM_TARGETS = 256
"""Number of targets drawn to measure the curvature, at the rows of the first batch in turn."""


def standard_deviations(key: Key, target: Target, params: Params, batch: Data) -> Params:
    r"""Initial standard deviations :math:`(N F_{ii} + 1 / s_i^2)^{-1/2}`.

    F is the Fisher information of a row, the mean squared gradient of the log likelihood for targets drawn from the
    model itself, and s the prior's scales.
    """
    model = target.model
    key_prior, key_rows = jax.random.split(key)

    def add(i: Array, total: Params) -> Params:
        x = jax.lax.dynamic_slice_in_dim(batch.x, i % batch.num, 1)
        noise_free = model.likelihood.distribution(model.outputs(params, x), params.noise)
        y = jax.lax.stop_gradient(noise_free.sample(jax.random.fold_in(key_rows, i)))
        gradient = jax.grad(lambda p: jnp.sum(model.log_likelihood(p, x, y.astype(batch.y.dtype))))(params)
        weight = 1.0 if batch.weight is None else batch.weight[i % batch.num]
        return jax.tree.map(lambda t, g: t + weight * jnp.square(jnp.where(jnp.isfinite(g), g, 0.0)), total, gradient)

    total = jax.lax.fori_loop(0, _NUM_TARGETS, add, jax.tree.map(jnp.zeros_like, params))
    prior = prior_variances(key_prior, model, batch.x)
    return jax.tree.map(lambda t, v: (target.num / _NUM_TARGETS * t + 1.0 / v) ** -0.5, total, prior)


def translated(model: Model, point: Posterior) -> Params:
    """Parameters of a point estimate's network in the coordinates of `model`, which may have more unknown scales."""
    return _translated(model, point.model, point.one())


@once
def _translated(model: Model, other: Model, params: Params) -> Params:
    weights = other.weights(params)
    layout = model.network.layout(weights)
    scales = model.prior.median_scales(weights, layout)
    return Params(model.prior.raw(weights, scales, layout), scales, params.noise)


@once
def _log_priors(model: Model, params: Params) -> tuple[Array, Array]:
    """Log prior of the parameters, and of their negatives."""
    target = Target(model, 1.0)
    return target.log_prior(params), target.log_prior(jax.tree.map(jnp.negative, params))


def check_support(model: Model, like: Params) -> None:
    """InputError unless the log prior is finite at weights of either sign: the support of q is the whole real line."""
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), like)
    for value in map(float, _log_priors(model, params)):
        if not math.isfinite(value):
            raise InputError(
                "a prior with a density above 0 on the whole real line, like that of q",
                f"log p = {value} of priors.{type(model.prior).__name__} at some weights",
                "Choose a prior without bounds, or write bounded unknowns as functions of unbounded ones.",
            )
