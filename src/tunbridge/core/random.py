r"""Normal draws for methods that need one per weight at every step, in a quarter of `jax.random`'s time on a CPU.

A word of 32 random bits is a hash of the key and a counter: two rounds of multiplications and shifts with the key in
between. The word, scaled to a uniform u in (-1, 1), is mapped to a normal quantile: u times a polynomial in
:math:`w = -\log(1 - u^2)`, one polynomial for w below 6 and another above. Quantiles are accurate to 3e-5; the largest
draw is 5.4, as in `jax.random`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.types import Key

_SPREAD, _FIRST, _SECOND = (np.uint32(number) for number in (0x9E3779B9, 0x21F0AAAD, 0xD35A2D97))
_LOG = (0.000951531392, -0.00346620711, 0.0122789428, -0.0554082959, 0.333341836, 0.405456789)
"""Coefficients of log m in (m - 1.5) / 0.5, for m from 1 to 2."""
_CENTRE = (
    0.00104414878,
    -0.00202415083,
    -0.0041104055,
    0.0224423454,
    -0.0320003685,
    -0.0730502626,
    1.02515635,
    2.29603555,
)
"""Coefficients of the quantile divided by u, in (w - 3) / 3, for w up to 6."""
_TAIL = (0.00185829996, -0.00898645393, 0.0325498143, -0.140710745, 1.18631222, 4.60389855)
"""The same in (w - 11.7) / 5.7, for w above 6."""


def fold_in(key: Key, number: Array | int) -> Key:
    """Return a new key from a key and a number; much cheaper than `jax.random.fold_in`, for every step of a loop."""
    return split(key, 1, number)[0]


def split(key: Key, num: int, number: Array | int = 0) -> Key:
    """Return `num` new keys, (num,), from a key and a number: `fold_in` for several keys at once."""
    width = jax.random.key_data(key).shape[-1]
    start = jnp.asarray(number, jnp.uint32) * np.uint32(num * width)
    bits = words(key, start + jax.lax.iota(jnp.uint32, num * width))
    return jax.random.wrap_key_data(bits.reshape(num, width), impl=jax.random.key_impl(key))


def normal(key: Key, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """Independent standard normal draws; for dtypes other than float32 they come from `jax.random`."""
    if dtype != jnp.float32:
        return jax.random.normal(key, shape, dtype)
    num = int(np.prod(shape, dtype=int))
    draws = _stored(key, lambda: _quantiles(words(key, jax.lax.iota(jnp.uint32, num))), jnp.zeros(num, dtype))
    return draws.reshape(shape)


def uniform(key: Key, shape: tuple[int, ...]) -> Array:
    """Independent uniform draws in float32: multiples of 2^-24 in [0, 1)."""
    num = int(np.prod(shape, dtype=int))
    bits = words(key, jax.lax.iota(jnp.uint32, num)) >> np.uint32(8)
    return (bits.astype(jnp.float32) * np.float32(2.0**-24)).reshape(shape)


def _stored(key: Key, make: Callable[[], Array], like: Array) -> Array:
    """Return `make()`, computed in a loop of one iteration so that XLA stores the result.

    Without the loop XLA would recompute it in each fused loop that uses it. The trip count must look dynamic to XLA;
    popcount <= 32 is always true. Accelerators skip the loop, because they would ask the host for the trip count.
    """
    if jax.default_backend() != "cpu":
        return make()
    iterations = jax.lax.population_count(jax.random.key_data(key)[0]) <= np.uint32(32)
    return jax.lax.fori_loop(0, iterations.astype(jnp.int32), lambda _, __: make(), like)


def _quantiles(words: Array) -> Array:
    u = jax.lax.bitcast_convert_type(words, jnp.int32).astype(jnp.float32) * np.float32(2.0**-31 * (1.0 - 2.0**-24))
    w = -_log((1.0 - u) * (1.0 + u))
    centre, tail = _polynomial(_CENTRE, w / 3.0 - 1.0), _polynomial(_TAIL, (w - 11.7) / 5.7)
    return u * jnp.where(w < 6.0, centre, tail)


def words(key: Key, counter: Array) -> Array:
    """Return 32 random bits for each counter value: a hash of the key and the counter."""
    first, second = jax.random.key_data(key)[:2]
    x = _mixed((counter * _SPREAD) ^ first)
    return _mixed(x + second)


def _mixed(x: Array) -> Array:
    """A bijection of 32-bit words in which every output bit depends on every input bit."""
    x = (x ^ (x >> np.uint32(16))) * _FIRST
    x = (x ^ (x >> np.uint32(15))) * _SECOND
    return x ^ (x >> np.uint32(15))


def _log(x: Array) -> Array:
    """Logarithm of positive numbers, accurate to 1e-5."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    exponent = ((bits >> 23) - 127).astype(x.dtype)
    mantissa = jax.lax.bitcast_convert_type((bits & 0x7FFFFF) | 0x3F800000, x.dtype)
    return exponent * np.float32(np.log(2.0)) + _polynomial(_LOG, 2.0 * mantissa - 3.0)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value
