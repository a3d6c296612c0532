"""What a prior says of one weight, whatever it is made of."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from tunbridge.core.types import Key, Prior, PyTree
from tunbridge.model.networks.layout import Leaf

_ONE = {"weight": jax.ShapeDtypeStruct((1, 1), jnp.float32)}
_ROLE = {"weight": Leaf("weight", inputs=(0,), outputs=(1,))}


def log_marginal(prior: Prior, w: Any, *, key: Key, num: int = 10_000) -> Array:
    r"""Log density of one weight with one input, :math:`\log p(w) = \log \int p(w \mid s) \, p(s) \, ds`.

    Scales are averaged over draws, so that a prior with unknown ones costs a little Monte Carlo noise.

    Parameters
    ----------
    prior
        Any that does not need to know the size of a layer.
    w
        Where, (points,).
    key, num
        Of the draws of the scales, and how many.
    """
    return _map(_density(prior, key, num), w)


def influence(prior: Prior, w: Any, *, key: Key, num: int = 10_000) -> Array:
    r"""The pull of a prior on one weight, :math:`-\frac{d}{dw} \log p(w)`; see `log_marginal`.

    Linear under a normal, constant under a Laplace, falling back to zero under a Student-t or a horseshoe.
    """
    slope = jax.grad(_density(prior, key, num))
    return _map(lambda one: -slope(one), w)


def _density(prior: Prior, key: Key, num: int) -> Callable[[Array], Array]:
    """The log density of one weight, as a function of a number."""
    _, scales = jax.jit(jax.vmap(lambda k: prior.sample(k, _ONE, _ROLE)))(jax.random.split(key, num))

    def given(scales: PyTree, w: Array) -> Array:
        def raw_of(w: Array) -> Array:
            return prior.raw({"weight": w.reshape(1, 1)}, scales, _ROLE)["weight"][0, 0]

        raw, slope = jax.value_and_grad(raw_of)(w)
        return prior.log_prob({"weight": raw.reshape(1, 1)}, scales, _ROLE) + jnp.log(jnp.abs(slope))

    def density(w: Array) -> Array:
        if not scales:
            return given((), w)
        return logsumexp(jax.vmap(lambda s: given(s, w))(scales)) - jnp.log(num)

    return density


def _map(function: Callable[[Array], Array], w: Any) -> Array:
    at = jnp.asarray(w, float)
    return jax.jit(lambda at: jax.lax.map(function, at))(at.ravel()).reshape(at.shape)
