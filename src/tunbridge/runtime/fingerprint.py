"""A digest of everything that determines a run: classes, settings, values, data, the code of functions."""

import dataclasses
import functools
import hashlib
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_PLAIN = (type(None), str, bytes, bool, int, float, complex, tuple, np.ndarray, np.generic, jax.Array)


def fingerprint(*parts: Any) -> str:
    """Return a digest that is equal for equal runs, also in other processes, and differs for different runs.

    For a function the digest covers its code, defaults and closure, and the functions and constants of its own package
    that its code names. It does not cover global lists, dictionaries and objects, nor the code of other packages.
    """
    digest = hashlib.sha256()
    _add(digest, parts, set())
    return digest.hexdigest()


def _add(digest: Any, thing: Any, seen: set[int]) -> None:
    """Add everything that determines an object to the digest, in an order that does not depend on the process.

    Each piece is preceded by its length, so that different sequences of pieces never give the same bytes.
    """

    def put(piece: bytes) -> None:
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)

    if thing is None or isinstance(thing, str | bytes | bool | int | float | complex):
        put(repr(thing).encode())
        return
    if isinstance(thing, np.ndarray | np.generic | jax.Array):
        array = to_host(thing)
        put(f"{array.dtype}{array.shape}".encode())
        put(np.ascontiguousarray(array).tobytes())
        return
    if id(thing) in seen:  # a function added before, or one that refers to itself
        put(f"{getattr(thing, '__qualname__', '')} again".encode())
        return
    seen.add(id(thing))
    parts = _parts(thing)
    put(f"{type(thing).__qualname__} of {len(parts)}".encode())
    for part in parts:
        _add(digest, part, seen)
    if not isinstance(thing, types.FunctionType):
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
        cells = [cell.cell_contents for cell in thing.__closure__ or () if cell != types.CellType()]
        return [thing.__qualname__, thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells, _globals_of(thing)]
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


def _globals_of(function: types.FunctionType) -> dict[str, Any]:
    """Globals that a function refers to, by name: constants, and functions of its own package."""
    values = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    package = _package(function)
    return {
        name: thing
        for name, thing in values.items()
        if isinstance(thing, _PLAIN)
        or (isinstance(_unwrapped(thing), types.FunctionType) and _package(thing) == package)
    }


def _unwrapped(thing: Any) -> Any:
    """The function inside its decorators."""
    while hasattr(thing, "__wrapped__"):
        thing = thing.__wrapped__
    return thing


def _names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {*code.co_names, *(name for inner_code in inner for name in _names(inner_code))}


def _package(function: Any) -> str:
    return (getattr(function, "__module__", None) or "").partition(".")[0]


def to_host(leaf: Any) -> np.ndarray:
    """Return an array in host memory; a PRNG key as its integer data."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)
