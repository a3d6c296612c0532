"""Checks that a model ends in a linear layer whose weights have independent normal priors."""

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.errors import InputError
from tunbridge.core.types import Params
from tunbridge.inference.linear import features
from tunbridge.model.model import Model

TRIED_ROWS = 8
"""Number of rows on which the network is checked."""


def check_layer(model: Model, x: np.ndarray) -> Params:
    """Raise InputError unless the model ends in such a layer; else return arbitrary parameters, for further checks."""
    if not model.prior.gaussian:
        raise _other_prior(model)
    params = _arbitrary(model)
    features.check_linear(model, params.weights, x)
    try:
        features.prior_variances(model, params)
    except InputError as error:
        raise _other_prior(model) from error
    return params


def _arbitrary(model: Model) -> Params:
    """Random weights, with unknowns at 0 on the real line."""
    like = jax.eval_shape(lambda key: model.sample_params(key, model.example()), jax.random.key(0))
    rng = np.random.default_rng(0)
    weights = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), like.weights)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (like.scales, like.noise))
    return Params(weights, *zeros)


def _other_prior(model: Model) -> InputError:
    return InputError(
        "independent normal weights in the last layer",
        f"priors.{type(model.prior).__name__}",
        "Use priors.Normal, or tb.Laplace(subset=tb.subsets.LastLayer()).",
    )
