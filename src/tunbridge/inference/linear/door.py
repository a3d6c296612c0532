"""Whether a model has a last layer whose weights are independent, normal and the last thing that happens."""

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.errors import InputError
from tunbridge.core.types import Params
from tunbridge.inference.linear import features
from tunbridge.model.model import Model

TRIED_ROWS = 8
"""How many rows a network is tried with."""


def check_layer(model: Model, x: np.ndarray) -> Params:
    """InputError unless it has; else some parameters of the model, to try it with."""
    if not model.prior.gaussian:
        raise _other_prior(model)
    params = _some(model)
    features.check_linear(model, params.weights, x)
    try:
        features.prior_variances(model, params)
    except InputError as error:
        raise _other_prior(model) from error
    return params


def _some(model: Model) -> Params:
    """Weights of any size and unknowns that are 0 on the real line."""
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
