"""Convert a model, or any tree of its parts, to and from JSON and arrays, using explicit tables of allowed classes.

===================================================== =====================================================
null, true, 1, 1.5, "text"                            themselves
{"float": "nan"}                                      a float that JSON cannot represent
{"list": [...]}, {"tuple": [...]}, {"dict": [[k, v]]} containers
{"array": name, "dtype", "shape", "kind"}             a JAX or NumPy array, or PRNG keys
{"struct": [shape, dtype]}                            a `jax.ShapeDtypeStruct`
{"class": name, "fields": {...}}                      an object of an allowed class
{"distribution": name, "args": {...}}                 a numpyro distribution
===================================================== =====================================================

Reading imports and calls only what the tables name.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from tunbridge.core.errors import InputError, LoadError
from tunbridge.core.names import LIKELIHOODS, NETWORKS, PRIORS, Table, declared, resolve

DISTRIBUTIONS = {
    "Beta": ("concentration1", "concentration0"),
    "Cauchy": ("loc", "scale"),
    "Chi2": ("df",),
    "Exponential": ("rate",),
    "Gamma": ("concentration", "rate"),
    "Gumbel": ("loc", "scale"),
    "HalfCauchy": ("scale",),
    "HalfNormal": ("scale",),
    "InverseGamma": ("concentration", "rate"),
    "Kumaraswamy": ("concentration1", "concentration0"),
    "Laplace": ("loc", "scale"),
    "LogNormal": ("loc", "scale"),
    "LogUniform": ("low", "high"),
    "Logistic": ("loc", "scale"),
    "Normal": ("loc", "scale"),
    "Pareto": ("scale", "alpha"),
    "SoftLaplace": ("loc", "scale"),
    "StudentT": ("df", "loc", "scale"),
    "Uniform": ("low", "high"),
    "Weibull": ("scale", "concentration"),
    "ExpandedDistribution": ("base_dist", "batch_shape"),
    "Independent": ("base_dist", "reinterpreted_batch_ndims"),
    "Wishart": ("concentration", "scale_tril"),
    "RootInverseGamma": ("concentration", "rate"),
    "LeftTruncatedDistribution": ("base_dist", "low"),
    "RightTruncatedDistribution": ("base_dist", "high"),
    "TwoSidedTruncatedDistribution": ("base_dist", "low", "high"),
}
_PARTS = {
    "Model": "tunbridge.model.model:Model",
    "Params": "tunbridge.core.types:Params",
    "Part": "tunbridge.model.priors.paths:Part",
}
"""Classes that models are made of and that are not among the public priors, likelihoods and networks."""
_OWN = {"RootInverseGamma": "tunbridge.model.priors.roots:RootInverseGamma"}
"""Distributions of Tunbridge; all others are numpyro's."""
_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
_KEYS = ("threefry2x32", "rbg", "unsafe_rbg")
_MOST, _MOST_INPUTS = 2**20, 2**24
"""Sizes that a file may always name, for an object and for a network's input; larger ones need as many array entries
in the file, so that a small file cannot make its reader allocate much memory."""
_FREE = ("Cut",)
"""Classes whose integers are not sizes."""


def classes(fixed: Mapping[str, str] = {}, more: Mapping[str, Table] = {}) -> dict[str, str]:
    """Return the classes allowed in a file, by name: parts of models, from Tunbridge and from installed packages.

    A class whose name is taken is qualified, as the likelihood "likelihoods.Laplace" beside the prior. Tunbridge's own
    come first, so that their names in files do not depend on what is installed.

    Parameters
    ----------
    fixed
        Further classes, by name.
    more
        Further tables, by the word that qualifies their names.
    """
    rooms = {"priors": PRIORS, "likelihoods": LIKELIHOODS, "networks": NETWORKS}
    places = {**_PARTS, **fixed}
    for room in rooms:
        _add(places, room, {k: place for k, place in declared(f"tunbridge.model.{room}").items() if k[0].isupper()})
    for room, table in more.items():
        _add(places, room, table.own)
    for room, table in (rooms | dict(more)).items():
        _add(places, room, table.brought)
    return places


def _add(places: dict[str, str], room: str, added: Mapping[str, str]) -> None:
    places |= {f"{room}.{name}" if name in places else name: place for name, place in added.items()}


class Encoder:
    """Converts trees to JSON; the arrays that they hold are collected in `arrays`.

    Parameters
    ----------
    table
        Import paths of the allowed classes, by name; None takes `classes()`.
    other
        Function that returns the JSON of an object that no table lists; None raises InputError.
    """

    def __init__(self, table: Mapping[str, str] | None = None, other: Callable[[Any], Any] | None = None):
        self.arrays: dict[str, np.ndarray] = {}
        self._names = {place: name for name, place in (table or classes()).items()}
        self._other = other or refuse_thing

    def encode(self, thing: Any) -> Any:
        """Return the JSON of a tree; InputError, naming the class, for an object that no table lists."""
        if thing is None or isinstance(thing, bool | str):
            return thing
        if isinstance(thing, np.ndarray | np.generic | jax.Array):
            return self._array(thing)
        if isinstance(thing, int):
            return int(thing)
        if isinstance(thing, float):
            return float(thing) if math.isfinite(thing) else {"float": repr(float(thing))}
        if type(thing) in (list, tuple):
            return {type(thing).__name__: [self.encode(each) for each in thing]}
        if type(thing) is dict and all(isinstance(key, str | int) for key in thing):
            return {"dict": [[key, self.encode(each)] for key, each in thing.items()]}
        if isinstance(thing, jax.ShapeDtypeStruct):
            return {"struct": [list(thing.shape), thing.dtype.name]}
        if isinstance(thing, dist.Distribution):
            return self._distribution(thing)
        name = self._names.get(f"{type(thing).__module__}:{type(thing).__qualname__}")
        return self._other(thing) if name is None else self._object(name, thing)

    def _object(self, name: str, thing: Any) -> Any:
        fields = {field: self.encode(getattr(thing, field)) for field in _fields(type(thing))}
        return {"class": name, "fields": fields}

    def _distribution(self, thing: dist.Distribution) -> Any:
        name = type(thing).__name__
        if name not in DISTRIBUTIONS or type(thing) is not _law(name):
            return self._other(thing)
        args = {arg: self.encode(getattr(thing, arg)) for arg in DISTRIBUTIONS[name]}
        return {"distribution": name, "args": args}

    def _array(self, thing: Any) -> Any:
        kind = "jax" if isinstance(thing, jax.Array) else "numpy"
        if isinstance(thing, jax.Array) and jnp.issubdtype(thing.dtype, jax.dtypes.prng_key):
            kind, thing = str(jax.random.key_impl(thing)), jax.random.key_data(thing)
        array = np.asarray(thing)
        if array.dtype.name not in _DTYPES or kind not in ("jax", "numpy", *_KEYS):
            raise InputError(f"arrays of {', '.join(_DTYPES)}", f"{array.dtype} ({kind})", "Convert the array.")
        name = str(len(self.arrays))
        self.arrays[name] = array.view(_stored(array.dtype.name)) if array.dtype.name == "bfloat16" else array
        return {"array": name, "dtype": array.dtype.name, "shape": list(array.shape), "kind": kind}


class Decoder:
    """The inverse of `Encoder`; raises LoadError for JSON or arrays that an encoder would not write.

    Parameters
    ----------
    arrays
        The arrays that the encoder collected; each is used once.
    table
        As for the encoder.
    others
        Functions by kind: each rebuilds an object from the list in a JSON ``{kind: [...]}`` that the encoder's `other`
        wrote.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        table: Mapping[str, str] | None = None,
        others: Mapping[str, Callable[[list], Any]] | None = None,
    ):
        self._arrays, self._table, self._others = dict(arrays), table or classes(), others or {}
        self._entries = sum(array.size for array in arrays.values())

    def decode(self, spec: Any) -> Any:
        """Return the tree that a JSON describes."""
        if spec is None or isinstance(spec, bool | str | int | float):
            return spec
        if not isinstance(spec, dict) or not spec:
            refuse(spec)
        if "class" in spec:
            return self._object(*_parts(spec, "class", "fields"))
        if "distribution" in spec:
            return self._distribution(*_parts(spec, "distribution", "args"))
        if "array" in spec:
            return self._array(*_parts(spec, "array", "dtype", "shape", "kind"))
        return self._container(*next(iter(spec.items()))) if len(spec) == 1 else refuse(spec)

    def _container(self, kind: str, content: Any) -> Any:
        if kind == "float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if not isinstance(content, list):
            refuse({kind: content})
        if kind == "list":
            return [self.decode(each) for each in content]
        if kind == "tuple":
            return tuple(self.decode(each) for each in content)
        if kind == "dict" and all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            return {key: self.decode(each) for key, each in content if isinstance(key, str | int) or refuse(key)}
        if kind == "struct" and len(content) == 2:
            self._refuse_larger(math.prod(_shape(content[0])), _MOST_INPUTS)
            return jax.ShapeDtypeStruct(_shape(content[0]), _dtype(content[1]))
        return self._others[kind](content) if kind in self._others else refuse({kind: content})

    def _object(self, name: Any, fields: Any) -> Any:
        if not isinstance(name, str) or name not in self._table:
            raise LoadError(f"it names a class {str(name)[:60]!r}, which is not in the table of allowed ones.")
        cls = resolve(self._table[name])
        values = {key: self.decode(each) for key, each in _named(fields, _fields(cls), name).items()}
        if name not in _FREE:
            for number in jax.tree.leaves(list(values.values())):
                if isinstance(number, int):
                    self._refuse_larger(abs(number), _MOST)
        return _call(cls, values)

    def _refuse_larger(self, size: int, most: int) -> None:
        """Raise LoadError for a size that the file's arrays cannot have, unless it is small anyway."""
        if size > max(most, self._entries):
            raise LoadError(f"it names a size of {size:,}, but its arrays hold only {self._entries:,} numbers.")

    def _distribution(self, name: Any, args: Any) -> Any:
        if not isinstance(name, str) or name not in DISTRIBUTIONS:
            raise LoadError(f"it names a distribution {str(name)[:60]!r}, which is not in the table of allowed ones.")
        values = {key: self.decode(each) for key, each in _named(args, DISTRIBUTIONS[name], name).items()}
        if "base_dist" in values and not isinstance(values["base_dist"], dist.Distribution):
            refuse(args)
        if name == "ExpandedDistribution":
            self._refuse_larger(math.prod(_shape(values.get("batch_shape"))), _MOST)
        return _call(_law(name), values)

    def _array(self, name: Any, dtype: Any, shape: Any, kind: Any) -> Any:
        if not isinstance(name, str) or name not in self._arrays:
            raise LoadError(f"its array {str(name)[:20]!r} is missing, or used twice.")
        array, target = self._arrays.pop(name), _dtype(dtype)
        if array.dtype != _stored(dtype) or array.shape != _shape(shape):
            raise LoadError(f"its array {name} is {array.dtype} {array.shape}, not {dtype} {shape} as announced.")
        array = array.view(target)
        if kind == "numpy":
            return array.copy()
        if jax.dtypes.canonicalize_dtype(target) != target:
            raise LoadError(
                f'it holds {dtype} numbers: call jax.config.update("jax_enable_x64", True) before loading it.'
            )
        if kind == "jax":
            return jnp.asarray(array, array.dtype)  # without a dtype JAX compiles a program for each shape
        return jax.random.wrap_key_data(jnp.asarray(array, array.dtype), impl=kind) if kind in _KEYS else refuse(kind)


def _law(name: str) -> type:
    """The class of a distribution in the table."""
    return resolve(_OWN[name]) if name in _OWN else getattr(dist, name)


def class_name(thing: Any) -> str:
    """Module and qualified name of an object's class, or of the object itself if it is a function or class."""
    named = thing if isinstance(getattr(thing, "__qualname__", None), str) else type(thing)
    return f"{named.__module__}.{named.__qualname__}"


def refuse_thing(thing: Any) -> NoReturn:
    """Raise InputError naming the class of an object that no table lists."""
    raise InputError(
        "built-in parts, which can be written to a file",
        class_name(thing),
        "Use parts of tb.networks, tb.priors and tb.likelihoods, with numbers or numpyro's distributions.",
    )


def refuse(spec: Any) -> NoReturn:
    """Raise LoadError showing the part that was not understood."""
    raise LoadError(f"it contains {str(spec)[:60]!r}, which no save writes.")


def _fields(cls: type) -> tuple[str, ...]:
    """Names of the arguments that a class is built from."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls) if field.init)
    return cls._fields  # type: ignore[attr-defined]  # a named tuple


def _call(cls: type, values: dict[str, Any]) -> Any:
    try:
        return cls(**values)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise LoadError(f"its {cls.__name__} cannot be built ({str(error).splitlines()[0][:120]}).") from error


def _parts(spec: dict, *names: str) -> list[Any]:
    return [spec[name] for name in names] if set(spec) == set(names) else refuse(spec)


def _named(given: Any, allowed: tuple[str, ...], name: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        refuse(given)
    for field in given:
        if field not in allowed:
            raise LoadError(f"it gives {name} a field {str(field)[:40]!r}, which it does not have.")
    return given


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list | tuple) or not all(type(axis) is int and axis >= 0 for axis in shape):
        refuse(shape)
    return tuple(shape)


def _dtype(name: Any) -> np.dtype:
    return np.dtype(jnp.bfloat16 if name == "bfloat16" else name) if name in _DTYPES else refuse(name)


def _stored(name: str) -> np.dtype:
    """Dtype in which an array is stored: bfloat16, which NumPy's format lacks, is stored as 16-bit integers."""
    return np.dtype("uint16" if name == "bfloat16" else name)
