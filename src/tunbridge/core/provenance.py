"""How a posterior was computed: the method and its settings, papers to cite, seconds, versions, device."""

import dataclasses
import functools
import importlib.metadata
import platform
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution, ExpandedDistribution, Independent

_CITED = re.compile(r":cite:[pt]:`([\w, ]+)`")


@dataclasses.dataclass(frozen=True)
class Cut:
    """Where a fit was stopped before its last step.

    Parameters
    ----------
    step, steps
        Steps done, and steps planned up to the end of the loop that was stopped.
    seconds
        The time limit that ended it; None where a callback did.

    Examples
    --------
    >>> print(Cut(120, 2000, 10.0))
    stopped after 120 of 2,000 steps by the limit of 10 seconds: not run to convergence
    """

    step: int
    steps: int
    seconds: float | None = None

    def __str__(self) -> str:
        by = "a callback" if self.seconds is None else f"the limit of {self.seconds:g} seconds"
        return f"stopped after {self.step:,} of {self.steps:,} steps by {by}: not run to convergence"


@dataclasses.dataclass(frozen=True)
class Provenance:
    """How a posterior was computed; recorded by `Method.fit`.

    Parameters
    ----------
    method
        The method and its settings, as in ``Ensemble(method=MAP(step_size=0.01, ...), size=5)``.
    references
        Bibliography keys that the method and the parts of the model cite; see `tunbridge.cite`.
    seconds
        Duration of the fit, compilation included.
    versions
        Versions of Tunbridge, JAX and Python.
    device
        The device that the fit ran on.
    cut
        Where the fit was stopped early; None where it ran to its end.
    """

    method: str
    references: tuple[str, ...]
    seconds: float
    versions: tuple[str, ...]
    device: str
    cut: Cut | None = None


def record(method: Any, model: Any, seconds: float, cut: Cut | None = None) -> Provenance:
    """Return the `Provenance` of a posterior that a method has just fitted."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("tunbridge", "jax")]
    versions.append(f"python {platform.python_version()}")
    config: Any = jax.config
    device = config.jax_default_device or jax.devices()[0]
    name = device if isinstance(device, str) else device.device_kind
    return Provenance(describe(method), references(method, model), seconds, tuple(versions), name, cut)


def describe(thing: Any) -> str:
    """A module with its settings on one line; functions by name, arrays by type and shape.

    Examples
    --------
    >>> import tunbridge as tb
    >>> describe(tb.Ensemble(tb.MAP(train=tb.Train(100)), 3))[:51]
    'Ensemble(method=MAP(step_size=0.01, optimiser=adam,'
    """
    if isinstance(thing, np.ndarray | np.generic | jax.Array):
        return f"{thing.dtype}[{', '.join(map(str, thing.shape))}]" if thing.shape else str(thing)
    if isinstance(thing, ExpandedDistribution | Independent):
        return f"{describe(thing.base_dist)} of shape {thing.shape()}"
    if isinstance(thing, Distribution):
        return f"{type(thing).__name__}({_settings(thing.get_args())})"
    if _is_record(thing):
        fields = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing) if field.init}
        return f"{type(thing).__name__}({_settings(fields)})"
    if isinstance(thing, tuple | list):
        return f"({', '.join(map(describe, thing))}{',' if len(thing) == 1 else ''})"
    if isinstance(thing, functools.partial):
        return describe(thing.func)
    if thing is None or isinstance(thing, bool | int | float | str):
        return repr(thing)
    return getattr(thing, "__name__", type(thing).__name__)


def _settings(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name}={describe(value)}" for name, value in fields.items())


def references(*things: Any) -> tuple[str, ...]:
    """Citation keys in the docstrings of the classes of these objects and of all their parts, without duplicates."""
    texts = [text for thing in things for cls in _classes(thing) for text in _docstrings(cls)]
    groups = [group for text in texts for group in _CITED.findall(text)]
    return tuple(dict.fromkeys(key for group in groups for key in re.findall(r"\w+", group)))


def _classes(thing: Any) -> Iterator[type]:
    if _is_record(thing):
        yield type(thing)
        for field in dataclasses.fields(thing):
            yield from _classes(getattr(thing, field.name))
    elif isinstance(thing, tuple | list):
        for part in thing:
            yield from _classes(part)


def _docstrings(cls: type) -> list[str]:
    return [vars(base)["__doc__"] for base in cls.__mro__ if vars(base).get("__doc__")]


def _is_record(thing: Any) -> bool:
    return dataclasses.is_dataclass(thing) and not isinstance(thing, type)
