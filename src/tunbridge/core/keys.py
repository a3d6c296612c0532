"""Random keys derived on the host, without compiling a program.

`split`, `fold_in` and `one` return what `jax.random.split`, `jax.random.fold_in` and indexing return. For keys of JAX's
default kind the hash Threefry-2x32 (Salmon et al. 2011) is computed in NumPy; other kinds are left to JAX.
"""

from typing import Any

import jax
import numpy as np

from tunbridge.core.types import Key

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def split(key: Key, num: int = 2) -> Key:
    """Split a key into `num` new keys, (num,); several keys into `num` new keys each, (keys, num)."""
    if not _can_hash(key):
        return jax.random.split(key, num) if key.ndim == 0 else jax.vmap(lambda k: jax.random.split(k, num))(key)
    words = _words(key)
    hashed = _hash(words[..., 0, None], words[..., 1, None], np.uint32(0), np.arange(num, dtype=np.uint32))
    return _key(np.stack(hashed, axis=-1))


def fold_in(key: Key, number: int) -> Key:
    """Return a new key from a key and a whole number from 0 to 2^32 - 1, as `jax.random.fold_in` does."""
    if not _can_hash(key):
        return jax.random.fold_in(key, number)
    first, second = _words(key)[:, None]
    return _key(np.concatenate(_hash(first, second, np.uint32(0), np.uint32(number))))


def one(keys: Key, index: int | np.ndarray) -> Key:
    """Return the key or keys at an index of an array of keys."""
    if not _can_hash(keys):
        return keys[index]
    return _key(_words(keys)[index])


def seed(key: Key) -> list[int]:
    """Return whole numbers that seed a generator of NumPy."""
    return np.asarray(jax.random.key_data(key)).ravel().tolist()


def _can_hash(key: Key) -> bool:
    config: Any = jax.config
    concrete = not isinstance(key, jax.core.Tracer)
    return concrete and str(jax.random.key_impl(key)) == "threefry2x32" and bool(config.jax_threefry_partitionable)


def _key(words: Any) -> Key:
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def _words(key: Key) -> np.ndarray:
    return np.asarray(jax.random.key_data(key))


def _hash(a: np.ndarray, b: np.ndarray, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32 of two words x, y under a key of two words a, b: twenty rounds of add, rotate and exclusive or."""
    schedule = (a, b, a ^ b ^ _PARITY)
    with np.errstate(over="ignore"):
        x, y = x + a, y + b
        for group in range(5):
            for rotation in _ROTATIONS[group % 2]:
                x = x + y
                y = x ^ ((y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation)))
            x = x + schedule[(group + 1) % 3]
            y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y
