"""Marginal density of a single weight under any prior."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from tunbridge.core.declared import Count, as_floats, checked
from tunbridge.core.types import Key, Prior, PyTree
from tunbridge.model.networks.layout import Leaf

_LIKE = {"weight": jax.ShapeDtypeStruct((1, 1), jnp.float32)}
_ROLE = {"weight": Leaf("weight", inputs=(0,), outputs=(1,))}


@checked
def log_marginal(prior: Prior, w: Any, *, key: Key, num: Count = 10_000) -> Array:
    r"""Log density of one weight with one input, :math:`\log p(w) = \log \int p(w \mid s) \, p(s) \, ds`.

    Unknown scales are averaged over draws, which adds a little Monte Carlo noise.

    Parameters
    ----------
    prior
        Any prior that does not depend on the sizes of layers.
    w
        Values of the weight at which to evaluate, (points,).
    key, num
        Random key, and number of draws of the scales.
    """
    return _map(_density(prior, key, num), w)


@checked
def influence(prior: Prior, w: Any, *, key: Key, num: Count = 10_000) -> Array:
    r"""The pull of a prior on one weight, :math:`-\frac{d}{dw} \log p(w)`; see `log_marginal`.

    Linear under a normal, constant under a Laplace, falling back to zero under a Student-t or a horseshoe.
    """
    derivative = jax.grad(_density(prior, key, num))
    return _map(lambda value: -derivative(value), w)


def _density(prior: Prior, key: Key, num: int) -> Callable[[Array], Array]:
    """Return a function of one number: the log density of one weight."""
    _, scales = jax.jit(jax.vmap(lambda k: prior.sample(k, _LIKE, _ROLE)))(jax.random.split(key, num))

    def log_density_given(scales: PyTree, w: Array) -> Array:
        def raw_of(w: Array) -> Array:
            return prior.raw({"weight": w.reshape(1, 1)}, scales, _ROLE)["weight"][0, 0]

        raw, derivative = jax.value_and_grad(raw_of)(w)
        return prior.log_prob({"weight": raw.reshape(1, 1)}, scales, _ROLE) + jnp.log(jnp.abs(derivative))

    def density(w: Array) -> Array:
        if not scales:
            return log_density_given((), w)
        return logsumexp(jax.vmap(lambda s: log_density_given(s, w))(scales)) - jnp.log(num)

    return density


def _map(function: Callable[[Array], Array], w: Any) -> Array:
    at = jnp.asarray(as_floats(w, "w"), float)
    return jax.jit(lambda at: jax.lax.map(function, at))(at.ravel()).reshape(at.shape)
