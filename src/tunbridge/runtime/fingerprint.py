"""A digest of everything that determines a run: classes, settings, values, data, the code of functions and classes."""

import contextlib
import dataclasses
import functools
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_PLAIN = (type(None), str, bytes, bool, int, float, complex, tuple, np.ndarray, np.generic, jax.Array)
_NAMED = (types.FunctionType, types.BuiltinFunctionType, type)
_HOLDERS = (property, functools.cached_property)
_LIBRARIES = sys.stdlib_module_names | {
    *("tunbridge", "jax", "jaxlib", "jaxtyping", "numpy", "scipy", "equinox", "optax", "numpyro", "blackjax", "tinygp"),
    *("flax", "keras", "torch", "sklearn", "matplotlib", "pandas", "polars", "pyarrow"),
}
"""Packages whose classes are compared by name; all other packages are the user's code."""


def fingerprint(*parts: Any) -> str:
    """Return a digest that is equal for equal runs, also in other processes, and differs for different runs.

    For a function the digest covers its code, defaults and closure, and the functions, classes and constants that its
    code names, directly or through a module. For an object of a user's class it covers the attributes, the slots, and
    the functions and constants of the class and its bases. It does not cover global lists, dictionaries and objects. Of
    what code names in another package, only the name is compared if either package is one of `_LIBRARIES`.
    """
    digest = _Digest()
    digest.add(parts)
    return digest.finish()


class _Digest:
    """A hash of objects, in an order that does not depend on the process.

    Functions and classes are numbered as they are first met and hashed last, so that they may refer to each other.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._code: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()

    def add(self, thing: Any) -> None:
        """Add everything that determines an object."""
        if thing is None or isinstance(thing, str | bytes | bool | int | float | complex):
            self._put(repr(thing).encode())
        elif isinstance(thing, np.ndarray | np.generic | jax.Array):
            array = to_host(thing)
            self._put(f"{array.dtype}{array.shape}".encode())
            self._put(np.ascontiguousarray(array).tobytes())
        elif isinstance(thing, types.FunctionType | type):
            if id(thing) not in self._numbers:
                self._numbers[id(thing)] = len(self._code)
                self._code.append(thing)
            self._put(f"code {self._numbers[id(thing)]}".encode())
        elif id(thing) in self._open:  # an object that refers to itself
            self._put(f"{type(thing).__qualname__} again".encode())
        else:
            self._open.add(id(thing))
            self._add_parts(thing)
            self._open.discard(id(thing))

    def finish(self) -> str:
        """Add the functions and classes that were met, and return the digest."""
        for thing in self._code:  # grows on the way
            self._add_parts(thing)
        return self._hash.hexdigest()

    def _add_parts(self, thing: Any) -> None:
        parts = _parts(thing)
        self._put(f"{type(thing).__qualname__} of {len(parts)}".encode())
        for part in parts:
            self.add(part)

    def _put(self, piece: bytes) -> None:
        """Add a piece after its length, so that different sequences of pieces never give the same bytes."""
        self._hash.update(len(piece).to_bytes(8, "little"))
        self._hash.update(piece)


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, types.FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or () if cell != types.CellType()]
        return [thing.__qualname__, thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells, _globals_of(thing)]
    if isinstance(thing, type):
        return [thing.__qualname__, *([] if _is_library(thing) else [_members_of(thing)])]
    if _is_library(type(thing)):
        return _values(thing)
    return [type(thing), _slots(thing), *_values(thing)]


def _values(thing: Any) -> list[Any]:
    """What an object holds."""
    if isinstance(thing, tuple | list):
        return list(thing)
    if isinstance(thing, dict):
        return [part for name in sorted(thing, key=str) for part in (str(name), thing[name])]
    if dataclasses.is_dataclass(thing):
        return [getattr(thing, field.name) for field in dataclasses.fields(thing)]
    if isinstance(thing, functools.partial):
        return [thing.func, thing.args, thing.keywords]
    if isinstance(thing, types.CodeType):
        return [thing.co_code, list(thing.co_consts), list(thing.co_names)]
    if isinstance(thing, types.MethodType):
        return [thing.__func__, thing.__self__]
    if isinstance(thing, _HOLDERS):
        return [_held(thing)]
    if isinstance(thing, jax.custom_jvp):
        return [thing.fun, thing.jvp]
    if isinstance(thing, jax.custom_vjp):
        return [thing.fun, thing.fwd, thing.bwd]
    if hasattr(thing, "__wrapped__"):  # a jitted function
        return [thing.__wrapped__]
    if isinstance(thing, types.BuiltinFunctionType | types.ModuleType):
        return [thing.__name__]
    if isinstance(thing, frozenset | set | jax.tree_util.PyTreeDef):
        return [str(thing) if not isinstance(thing, frozenset | set) else sorted(map(str, thing))]
    return [getattr(thing, "__name__", ""), dict(getattr(thing, "__dict__", {}))]


def _slots(thing: Any) -> dict[str, Any]:
    """Values of an object's slots that are set, by class and name."""
    values = {}
    for base in type(thing).__mro__:
        for name, slot in () if _is_library(base) else vars(base).items():
            if isinstance(slot, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # not set
                    values[f"{base.__qualname__}.{name}"] = slot.__get__(thing)
    return values


def _members_of(cls: type) -> dict[str, Any]:
    """Functions and constants of a user's class and its bases outside libraries, by class and name."""
    members = {}
    for place, base in enumerate(cls.__mro__):
        if _is_library(base):
            members[f"{place}"] = base.__qualname__
            continue
        for name, member in vars(base).items():
            inner = _inner(member)
            if isinstance(inner, _NAMED) or (isinstance(inner, _PLAIN) and not name.startswith("__")):
                members[f"{place}.{name}"] = _thing_or_name(member, _package(base))
    return members


def _globals_of(function: types.FunctionType) -> dict[str, Any]:
    """Constants, functions and classes that a function refers to, by module and name."""
    names, package = _names(function.__code__), _top(function.__globals__.get("__name__"))
    return {
        place: _thing_or_name(thing, package)
        for place, thing in _mentioned(names, function.__globals__, package)
        if isinstance(_inner(thing), (*_PLAIN, *_NAMED))
    }


def _mentioned(names: set[str], space: Mapping[str, Any], package: str) -> Iterator[tuple[str, Any]]:
    """Values that code may mean by these names: globals, and attributes of user's modules among them."""
    spaces = {"": space}
    waiting = [""]
    for place in waiting:  # grows on the way
        for name in sorted(names & spaces[place].keys()):
            thing = spaces[place][name]
            if not isinstance(thing, types.ModuleType):
                yield f"{place}.{name}", thing
                continue
            yield f"{place}.{name}", thing.__name__
            if thing.__name__ not in spaces and not _is_library(thing) and _is_compared(thing, package):
                spaces[thing.__name__] = vars(thing)
                waiting.append(thing.__name__)


def _inner(thing: Any) -> Any:
    """The function inside its decorators, its property or its partial call; other things as they are."""
    while True:
        if isinstance(thing, _HOLDERS):
            thing = _held(thing)
        elif isinstance(thing, functools.partial):
            thing = thing.func
        elif not isinstance(thing, type) and hasattr(thing, "__wrapped__"):
            thing = thing.__wrapped__
        else:
            return thing


def _held(thing: property | functools.cached_property) -> Any:
    return thing.fget if isinstance(thing, property) else thing.func


def _names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {*code.co_names, *(name for inner_code in inner for name in _names(inner_code))}


def _thing_or_name(thing: Any, package: str) -> Any:
    """What code of this package names, or only its name and the arguments bound to it."""
    inner = _inner(thing)
    if _is_compared(inner, package):
        return thing
    bound = (thing.args, thing.keywords) if isinstance(thing, functools.partial) else ()
    return [inner.__qualname__, *bound]


def _is_compared(thing: Any, package: str) -> bool:
    """Whether more than the name is compared of what code of this package names."""
    if isinstance(thing, _PLAIN) or _package(thing) == package:
        return True
    return not _is_library(thing) and package not in _LIBRARIES


def _is_library(thing: Any) -> bool:
    return _package(thing) in _LIBRARIES


def _package(thing: Any) -> str:
    return _top(thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None))


def _top(module: Any) -> str:
    """Top-level package of a module's name; objects without a module are Python's."""
    name = module if isinstance(module, str) else "builtins"
    if name == "__main__":
        name = sys.modules[name].__package__ or name  # python -m package.module
    return name.partition(".")[0]


def to_host(leaf: Any) -> np.ndarray:
    """Return an array in host memory; a PRNG key as its integer data."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)
