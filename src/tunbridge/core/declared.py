"""Arguments checked against their annotations: a wrong one raises InputError, which says what was expected and given.

`Module` and `Checked` check the arguments of a class, `checked` those of a function. The annotation is the
declaration: ``int`` is a whole number (`Count`: at least 1), ``float`` a real number (`Positive`: above 0),
``Literal`` a choice, ``tuple[int, ...]`` a sequence of whole numbers, an ``Array`` named ``key`` a JAX key, a class or
protocol an instance of it. Any other text in `Annotated` is the advice in the error message. An argument annotated
``Any`` is not checked here: the function itself does.
"""

import collections.abc
import dataclasses
import functools
import importlib
import inspect
import math
import numbers
import os
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, Self, TypeVar, cast, get_args, get_origin

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.errors import InputError

MOST = 2**31 - 1
"""The largest count: inside a program, steps and rows are counted in 32 bits."""
_LONGEST = 60
_LATER = {"Axes": "matplotlib.axes"}
"""Modules of classes that annotations name but that are slow to import: imported when such an argument is checked."""
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


Count = Annotated[int, "from 1 to 2,147,483,647"]
Positive = Annotated[float, "above 0"]
_BOUNDS: dict[str, Callable[[Any], bool]] = {
    get_args(Count)[1]: lambda value: 1 <= value <= MOST,
    get_args(Positive)[1]: lambda value: value > 0,
}


class Kind(NamedTuple):
    """What an argument may be: in words, as a test, and with advice for the error message."""

    words: str
    allows: Callable[[Any], bool]
    way: str = ""
    lacks: Callable[[Any], str] = lambda _: ""


class Checked:
    """A dataclass whose arguments are checked against the annotations of its fields before it is built."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Raise InputError for an argument that its field does not allow."""
        if args or kwargs:  # copying and unpickling pass none
            _check(cls, _kinds_of_fields(cast(Any, cls)), args, kwargs)
        return super().__new__(cls)


class Module(Checked, eqx.Module):
    """An `equinox.Module` whose arguments are checked against the annotations of its fields before it is built.

    Fields declared by a class outside this package are not checked.
    """


def as_floats(value: Any, name: str) -> np.ndarray:
    """Return real numbers of any shape as a float64 array; InputError if they are not real numbers."""
    try:
        array = np.asarray(value)
        if array.dtype.kind in "SUmM" or (array.dtype == object and any(item is None for item in array.flat)):
            raise TypeError("text, dates and None can be cast, but are no numbers")
        return array.astype(np.float64, casting="same_kind" if array.dtype.kind == "c" else "unsafe")
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InputError(f"{name} as real numbers", shown(value), f"Change {name}=.") from error


def checked(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """Decorate a function to raise InputError for arguments that its annotations do not allow."""

    @functools.wraps(function)
    def call(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        _check(function, _kinds_of_parameters(function), args, kwargs)
        return function(*args, **kwargs)

    return call


def _check(called: Callable, kinds: Mapping[str, Kind], args: tuple, kwargs: Mapping[str, Any]) -> None:
    for name, value in (*zip(kinds, args, strict=False), *kwargs.items()):
        kind = kinds.get(name)
        if kind is not None and not kind.allows(value):
            way = kind.way or (f"Write {value.__name__}(...)." if inspect.isclass(value) else f"Change {name}=.")
            raise InputError(f"{name}= as {kind.words}, for {called.__name__}", shown(value) + kind.lacks(value), way)


def shown(value: Any) -> str:
    """A short text of a value for an error message, with its type where that helps."""
    if isinstance(value, np.ndarray | jax.Array):
        return f"an array of {value.dtype}, shape {value.shape}"
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a user's own __repr__ may raise anything
        text = ""
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return text if value is None or isinstance(value, str | bool | int | float) else f"{text} ({type(value).__name__})"


@functools.lru_cache(None)
def _kinds_of_fields(cls: Any) -> dict[str, Kind]:
    """The `Kind` of each argument of a class by name, in the order of its signature."""
    init = cls.__init__
    fields = {field.name: field for field in dataclasses.fields(cls)}
    owners = {name: owner for owner in reversed(cls.__mro__) for name in vars(owner).get("__annotations__", ())}
    converted = {name for name, field in fields.items() if "converter" in field.metadata}  # __init__ says Any
    hints = _hints(cls) | {name: hint for name, hint in _hints(init).items() if name not in converted}
    hints |= {name: hint for name, field in fields.items() if (hint := _converter_hint(field)) is not None}
    package, kinds = __name__.partition(".")[0], {}
    for name in list(inspect.signature(init).parameters)[1:]:
        ours = owners.get(name, cls).__module__.partition(".")[0] == package
        way = fields[name].metadata.get("way", "") if name in fields else ""
        kinds[name] = _kind(name, hints.get(name, Any))._replace(way=way) if ours else _ANYTHING
    return kinds


def _converter_hint(field: dataclasses.Field) -> Any:
    """The annotation of the argument of a field's converter; None without a converter or annotation."""
    converter = field.metadata.get("converter")
    return next(iter(_hints(converter).values()), None) if isinstance(converter, types.FunctionType) else None


@functools.cache
def _kinds_of_parameters(function: Callable) -> dict[str, Kind]:
    hints = _hints(function)
    return {name: _kind(name, hints.get(name, Any)) for name in inspect.signature(function).parameters}


def _hints(thing: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except NameError as error:  # a name that only a type checker imports
        if error.name not in _LATER:
            return {}
        later = {name: getattr(importlib.import_module(module), name) for name, module in _LATER.items()}
        return typing.get_type_hints(thing, localns=later, include_extras=True)
    except TypeError:
        return {}


_ANYTHING = Kind("anything", lambda _: True)


def _kind(name: str, hint: Any) -> Kind:
    """The `Kind` that an annotation allows."""
    if hint is jax.Array and name == "key":
        return Kind("a key, such as jax.random.key(0)", _is_key)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind, bound = _kind(name, parts[0]), parts[1]
        if bound not in _BOUNDS:
            return kind._replace(way=bound)
        return Kind(f"{kind.words} {bound}", lambda value: kind.allows(value) and _within(bound, value))
    if origin is Literal:
        return Kind(f"one of {', '.join(map(repr, parts))}", lambda value: isinstance(value, str) and value in parts)
    if origin in (typing.Union, types.UnionType):
        kinds = [_kind(name, part) for part in parts]
        words = " or ".join(dict.fromkeys(kind.words for kind in kinds))
        return Kind(words, lambda value: any(kind.allows(value) for kind in kinds))
    if origin in (list, collections.abc.Sequence) or (origin is tuple and parts[-1] is ...):
        item = _kind(name, parts[0])
        return Kind(f"a list, each {item.words}", lambda value: _is_sequence(value) and all(map(item.allows, value)))
    if origin is tuple and parts:
        kinds = [_kind(name, part) for part in parts]
        words = f"a tuple of {' and '.join(kind.words for kind in kinds)}"
        return Kind(words, lambda value: _is_sequence(value) and _all_allow(kinds, value))
    if origin in (dict, collections.abc.Mapping):
        inner = _kind(name, parts[1])
        words = f"a dictionary, each value {inner.words}"
        return Kind(words, lambda value: isinstance(value, origin) and all(map(inner.allows, value.values())))
    if origin is collections.abc.Callable:
        return Kind("a function", callable)
    if origin is not None:
        return Kind(f"a {origin.__name__}", lambda value: isinstance(value, origin))
    if not inspect.isclass(hint):
        return _ANYTHING
    if getattr(hint, "_is_protocol", False):
        methods = [name for name in (*getattr(hint, "__annotations__", ()), *vars(hint)) if name[0] != "_"]
        listed = f"{', '.join(methods[:4])}{', ...' if len(methods) > 4 else ''}"
        words = f"a {re.sub('(?<!^)(?=[A-Z])', ' ', hint.__name__).lower()} with the methods {listed}"
        kind = Kind(words, lambda value: not inspect.isclass(value) and not _lacking(value, methods))
        return kind._replace(lacks=lambda value: _without(value, methods))
    return Kind(_in_words(hint), lambda value: isinstance(value, hint))


def _lacking(value: Any, methods: list[str]) -> list[str]:
    """Members that an object lacks; properties are not evaluated, which may be expensive or raise."""
    own = getattr(value, "__dict__", {})
    return [name for name in methods if name not in own and not hasattr(type(value), name)]


def _without(value: Any, methods: list[str]) -> str:
    missing = _lacking(value, methods)
    return f" without {', '.join(missing)}" if missing else ""


def _within(bound: str, value: Any) -> bool:
    return isinstance(value, jax.core.Tracer) or bool(_BOUNDS[bound](value))


def _all_allow(kinds: list[Kind], values: Any) -> bool:
    return len(kinds) == len(values) and all(kind.allows(value) for kind, value in zip(kinds, values, strict=True))


def _in_words(cls: type) -> str:
    """A class in words, with up to two of its public concrete subclasses as examples."""
    subclasses: list[type] = cls.__subclasses__()
    names = [
        subclass.__name__ for subclass in subclasses if not inspect.isabstract(subclass) and subclass.__name__[0] != "_"
    ]
    examples = f", such as {' or '.join(f'{name}()' for name in names[:2])}" if names else ""
    return f"a {cls.__name__}{examples}"


def _is_whole(value: Any) -> bool:
    if isinstance(value, np.ndarray | jax.Array):
        return value.shape == () and jnp.issubdtype(value.dtype, jnp.integer)
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and abs(int(value)) < 2**63


def is_real(value: Any) -> bool:
    """Whether a value is a real number, or an array of them; a Python NaN is not one."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return not math.isnan(float(value))
    except OverflowError:
        return False


def _is_array(value: Any) -> bool:
    return (hasattr(value, "shape") and hasattr(value, "dtype")) or is_real(value) or _is_sequence(value)


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple | range) or (isinstance(value, np.ndarray) and value.ndim == 1)


_SIMPLE: dict[Any, Kind] = {
    Any: _ANYTHING,
    object: _ANYTHING,
    type(None): Kind("None", lambda value: value is None),
    int: Kind("a whole number", _is_whole),
    float: Kind("a real number", lambda value: is_real(value) and np.ndim(value) == 0),
    bool: Kind("True or False", lambda value: isinstance(value, bool | np.bool_)),
    str: Kind("text", lambda value: isinstance(value, str)),
    jax.Array: Kind("an array", _is_array),
    np.ndarray: Kind("an array", _is_array),
    os.PathLike: Kind("a path", lambda value: isinstance(value, os.PathLike)),
}
