"""A digest of everything that decides a run: classes, settings, numbers, data, the code of functions."""

import dataclasses
import functools
import hashlib
import types
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def fingerprint(*parts: Any) -> str:
    """The same for the same run in another process, another for any other."""
    digest = hashlib.sha256()
    for piece in _pieces(parts, set()):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(thing: Any, seen: set[int]) -> Iterator[bytes]:
    """What decides a thing, in an order that does not depend on the process."""
    if thing is None or isinstance(thing, str | bytes | bool | int | float | complex):
        yield repr(thing).encode()
        return
    if isinstance(thing, np.ndarray | np.generic | jax.Array):
        array = to_host(thing)
        yield f"{array.dtype}{array.shape}".encode()
        yield np.ascontiguousarray(array).tobytes()
        return
    if id(thing) in seen:  # a function that refers to itself
        return
    seen.add(id(thing))
    yield type(thing).__qualname__.encode()
    for part in _parts(thing):
        yield from _pieces(part, seen)
    seen.discard(id(thing))


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, tuple | list):
        return list(thing)
    if isinstance(thing, dict):
        return [part for name in sorted(thing, key=str) for part in (str(name), thing[name])]
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return [getattr(thing, field.name) for field in dataclasses.fields(thing)]
    if isinstance(thing, functools.partial):
        return [thing.func, thing.args, thing.keywords]
    if isinstance(thing, types.FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        return [thing.__qualname__, thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells]
    if isinstance(thing, types.CodeType):
        return [thing.co_code, list(thing.co_consts), list(thing.co_names)]
    if isinstance(thing, types.MethodType):
        return [thing.__func__, thing.__self__]
    if hasattr(thing, "__wrapped__"):  # a jitted function
        return [thing.__wrapped__]
    if isinstance(thing, type | types.BuiltinFunctionType | types.ModuleType):
        return [thing.__name__]
    if isinstance(thing, frozenset | set | jax.tree_util.PyTreeDef):
        return [str(thing) if not isinstance(thing, frozenset | set) else sorted(map(str, thing))]
    return [getattr(thing, "__name__", ""), dict(getattr(thing, "__dict__", {}))]


def to_host(leaf: Any) -> np.ndarray:
    """An array in host memory; a PRNG key as its numbers."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)
