"""A network as plain data: calls of named functions, hashable and picklable, run in JAX."""

import dataclasses
from collections.abc import Callable
from typing import Any

from jax import Array

from tunbridge.model.networks.adapters.torch import functions, sequences

FUNCTIONS: dict[str, Callable] = {**functions.FUNCTIONS, **sequences.FUNCTIONS}


@dataclasses.dataclass(frozen=True)
class Value:
    """The result of an earlier step, by name."""

    name: str


@dataclasses.dataclass(frozen=True)
class Weight:
    """A weight or a constant, by its path."""

    path: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Items:
    """A list in hashable form."""

    items: tuple


@dataclasses.dataclass(frozen=True)
class Named:
    """A dictionary in hashable form."""

    items: tuple[tuple[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Slice:
    """A slice in hashable form."""

    start: Any
    stop: Any
    step: Any


@dataclasses.dataclass(frozen=True)
class Step:
    """One call: the name of its value, a name in `FUNCTIONS`, and the arguments."""

    name: str
    function: str
    args: tuple
    kwargs: Named


@dataclasses.dataclass(frozen=True)
class Graph:
    """Steps in order, from the value called `inputs` to `outputs`."""

    inputs: str
    steps: tuple[Step, ...]
    outputs: Any

    def run(self, arrays: dict[tuple[str, ...], Array], x: Array) -> Any:
        """The outputs at x, given weights and constants by path."""
        values: dict[str, Any] = {self.inputs: x}
        for step in self.steps:
            args, kwargs = _filled(step.args, values, arrays), _filled(step.kwargs, values, arrays)
            values[step.name] = FUNCTIONS[step.function](*args, **kwargs)
        return _filled(self.outputs, values, arrays)


def _filled(part: Any, values: dict[str, Any], arrays: dict[tuple[str, ...], Array]) -> Any:
    """An argument with values and arrays in place of their names."""

    def fill(inner: Any) -> Any:
        return _filled(inner, values, arrays)

    match part:
        case Value(name):
            return values[name]
        case Weight(path):
            return arrays[path]
        case Slice(start, stop, step):
            return slice(fill(start), fill(stop), fill(step))
        case Items(items):
            return [fill(item) for item in items]
        case Named(items):
            return {name: fill(item) for name, item in items}
        case tuple():
            return tuple(fill(item) for item in part)
    return part
