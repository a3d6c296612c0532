r"""Expectations :math:`E[\phi(u) \phi(v)]` over normal :math:`(u, v)`: how one wide layer maps a covariance."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.model.networks.architectures.mlp import ACTIVATIONS

_NODES = 48
"""Quadrature nodes in each of the two dimensions."""
_ROUNDING = 8.0
"""Correlations within this many machine epsilons of 1 are treated as 1."""


def _correlation(a: Array, c: Array, b: Array) -> Array:
    product = a * b
    return jnp.where(product > 0, c / jnp.sqrt(jnp.where(product > 0, product, 1.0)), 0.0)


def _angle(a: Array, c: Array, b: Array) -> Array:
    """Angle between u and v as vectors; its derivative is set to 0 at both ends, where it is infinite."""
    cos = _correlation(a, c, b)
    inside = jnp.abs(cos) < 1.0 - _ROUNDING * jnp.finfo(cos.dtype).eps
    return jnp.where(inside, jnp.arccos(jnp.where(inside, cos, 0.0)), jnp.where(cos > 0, 0.0, jnp.pi))


def _relu(a: Array, c: Array, b: Array) -> Array:
    """The arc-cosine kernel of order 1."""
    theta, root = _angle(a, c, b), jnp.sqrt(jnp.maximum(a * b, jnp.finfo(a.dtype).tiny))
    return (root * jnp.sin(theta) + (jnp.pi - theta) * c) / (2 * jnp.pi)


def _step(a: Array, c: Array, b: Array) -> Array:
    """The arc-cosine kernel of order 0."""
    return (jnp.pi - _angle(a, c, b)) / (2 * jnp.pi)


def _sign(a: Array, c: Array, b: Array) -> Array:
    return 1.0 - 2.0 * _angle(a, c, b) / jnp.pi


def _erf(a: Array, c: Array, b: Array) -> Array:
    """The arc-sine kernel."""
    return 2.0 / jnp.pi * jnp.arcsin(2.0 * c / jnp.sqrt((1.0 + 2.0 * a) * (1.0 + 2.0 * b)))


def _sin(a: Array, c: Array, b: Array) -> Array:
    return 0.5 * (jnp.exp(c - 0.5 * (a + b)) - jnp.exp(-c - 0.5 * (a + b)))


CLOSED: dict[str, Callable[[Array, Array, Array], Array]] = {
    "relu": _relu,
    "step": _step,
    "sign": _sign,
    "erf": _erf,
    "sin": _sin,
    "identity": lambda _, c, __: c,
}
"""The activations whose expectation has a closed form, by name."""


def quadrature(activation: str, a: Array, c: Array, b: Array) -> Array:
    """Expectation of phi(u) phi(v) for any activation, by Gauss-Hermite quadrature in two dimensions.

    The error is at rounding level for smooth activations, about 1e-3 with a kink and about 1e-2 with a jump.
    """
    phi = ACTIVATIONS[activation]
    node, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    weight = weight / weight.sum()
    rho = _correlation(a, c, b)
    left = 1.0 - rho**2
    inside = left > _ROUNDING * jnp.finfo(rho.dtype).eps
    across = jnp.where(inside, jnp.sqrt(jnp.where(inside, left, 1.0)), 0.0)
    u = jnp.sqrt(a) * node
    v = jnp.sqrt(b) * (rho * node[:, None] + across * node[None, :])
    return jnp.sum(weight[:, None] * weight[None, :] * phi(u)[:, None] * phi(v))


def moment(activation: str, a: Array, c: Array, b: Array) -> Array:
    """Expectation of phi(u) phi(v) for normal u, v with variances a, b and covariance c."""
    if activation in CLOSED:
        return CLOSED[activation](a, c, b)
    return quadrature(activation, a, c, b)
