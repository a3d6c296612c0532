r"""Normal numbers for methods that need one a weight at every step, at a quarter of what `jax.random` takes on a CPU.

A word of 32 random bits comes from a hash of the key and a counter: two rounds of multiplications and shifts with the
key in between. The word is the rank of the number among equally likely ones, and the normal
quantile of a rank u in (-1, 1) is u times a polynomial of :math:`w = -\log(1 - u^2)`, one below and one above w = 6.
Quantiles are right to 3e-5; the largest number is 5.4, as in `jax.random`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.types import Key

_SPREAD, _FIRST, _SECOND = (np.uint32(number) for number in (0x9E3779B9, 0x21F0AAAD, 0xD35A2D97))
_LOG = (0.000951531392, -0.00346620711, 0.0122789428, -0.0554082959, 0.333341836, 0.405456789)
"""Of log m, in (m - 1.5) / 0.5 for m from 1 to 2."""
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
"""Of the quantile by u, in (w - 3) / 3 for w up to 6."""
_TAIL = (0.00185829996, -0.00898645393, 0.0325498143, -0.140710745, 1.18631222, 4.60389855)
"""The same in (w - 11.7) / 5.7 above."""


def fold_in(key: Key, number: Array | int) -> Key:
    """A new key of a key and a number, for use at every step of a loop: a fraction of `jax.random.fold_in`'s work."""
    return split(key, 1, number)[0]


def split(key: Key, num: int, number: Array | int = 0) -> Key:
    """`num` new keys, (num,), of a key and a number; as `fold_in` for several."""
    width = jax.random.key_data(key).shape[-1]
    first = jnp.asarray(number, jnp.uint32) * np.uint32(num * width)
    drawn = words(key, first + jax.lax.iota(jnp.uint32, num * width))
    return jax.random.wrap_key_data(drawn.reshape(num, width), impl=jax.random.key_impl(key))


def normal(key: Key, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """Independent standard normal numbers. Numbers other than of single precision are `jax.random`'s."""
    if dtype != jnp.float32:
        return jax.random.normal(key, shape, dtype)
    num = int(np.prod(shape, dtype=int))
    drawn = _kept(key, lambda: _quantiles(words(key, jax.lax.iota(jnp.uint32, num))), jnp.zeros(num, dtype))
    return drawn.reshape(shape)


def uniform(key: Key, shape: tuple[int, ...]) -> Array:
    """Independent numbers of single precision, multiples of 2^-24 from 0 to below 1."""
    num = int(np.prod(shape, dtype=int))
    drawn = words(key, jax.lax.iota(jnp.uint32, num)) >> np.uint32(8)
    return (drawn.astype(jnp.float32) * np.float32(2.0**-24)).reshape(shape)


def _kept(key: Key, make: Callable[[], Array], like: Array) -> Array:
    """What a function makes, in a loop of one turn.

    XLA keeps what a loop made; all else it would make anew in each of the loops that use it. The trip count must look
    dynamic to XLA; popcount <= 32 is always true. An accelerator would ask the host for the trip count.
    """
    if jax.default_backend() != "cpu":
        return make()
    turns = jax.lax.population_count(jax.random.key_data(key)[0]) <= np.uint32(32)
    return jax.lax.fori_loop(0, turns.astype(jnp.int32), lambda _, __: make(), like)


def _quantiles(words: Array) -> Array:
    u = jax.lax.bitcast_convert_type(words, jnp.int32).astype(jnp.float32) * np.float32(2.0**-31 * (1.0 - 2.0**-24))
    w = -_log((1.0 - u) * (1.0 + u))
    centre, tail = _polynomial(_CENTRE, w / 3.0 - 1.0), _polynomial(_TAIL, (w - 11.7) / 5.7)
    return u * jnp.where(w < 6.0, centre, tail)


def words(key: Key, counter: Array) -> Array:
    """32 random bits for each counter, a whole number."""
    first, second = jax.random.key_data(key)[:2]
    x = _mixed((counter * _SPREAD) ^ first)
    return _mixed(x + second)


def _mixed(x: Array) -> Array:
    """A bijection of words in which every bit depends on every bit."""
    x = (x ^ (x >> np.uint32(16))) * _FIRST
    x = (x ^ (x >> np.uint32(15))) * _SECOND
    return x ^ (x >> np.uint32(15))


def _log(x: Array) -> Array:
    """Log of positive numbers, to 1e-5."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    exponent = ((bits >> 23) - 127).astype(x.dtype)
    mantissa = jax.lax.bitcast_convert_type((bits & 0x7FFFFF) | 0x3F800000, x.dtype)
    return exponent * np.float32(np.log(2.0)) + _polynomial(_LOG, 2.0 * mantissa - 3.0)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value
