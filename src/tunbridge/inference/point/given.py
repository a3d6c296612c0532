"""Weights passed as ``init=`` in place of a point estimate."""

from typing import Any

import jax
import jax.numpy as jnp

from tunbridge.core.errors import InputError
from tunbridge.core.types import Params, PyTree
from tunbridge.inference.posteriors import Posterior
from tunbridge.model.model import Model


def as_params(model: Model, init: Any) -> Any:
    """Return Params from a network's own weights, with unknowns at prior medians; anything else unchanged."""
    if init is None or isinstance(init, Params | Posterior):
        return init
    like = jax.eval_shape(model.network.init, jax.random.key(0), model.example())
    _check(like, init)
    layout = model.network.layout(init)
    scales = model.prior.median_scales(init, layout)
    return Params(model.prior.raw(init, scales, layout), scales, model.likelihood.median_noise())


def given(model: Model, init: Any) -> Params:
    """Return Params from `init`: from Params, one network of a posterior, or a network's own weights."""
    if init is None:
        raise InputError(
            "init=, the weights, with point=None", "none", "Write fit(model, data, init=weights, key=key)."
        )
    if isinstance(init, Posterior):
        init = init.one()
    params = as_params(model, init)
    like = jax.eval_shape(lambda key: model.sample_params(key, model.example()), jax.random.key(0))
    _check(like.weights, params.weights)
    layout = model.network.layout(params.weights)
    full = Params(
        params.weights,
        params.scales or (like.scales and model.prior.median_scales(params.weights, layout)),
        params.noise or (like.noise and model.likelihood.median_noise()),
    )
    _check(like, full)
    return jax.tree.map(jnp.asarray, full)


def _check(like: PyTree, actual: PyTree) -> None:
    expected, got = (str(jax.tree.map(jnp.shape, tree)) for tree in (like, actual))
    if expected != got:
        raise InputError(f"init= of shapes {expected}", got, "Pass weights of this network.")
