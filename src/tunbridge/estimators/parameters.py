"""Fields of methods, networks, priors and likelihoods as nested parameters such as "method__point__step_size"."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import equinox as eqx

from tunbridge.core.errors import InputError


def fields(part: Any) -> dict[str, Any]:
    """Return the fields of a part by name; an empty dict if it is a plain value."""
    if not isinstance(part, eqx.Module):
        return {}
    names = [field.name for field in dataclasses.fields(part) if field.init]
    return {name: getattr(part, name) for name in names} if set(names) <= _arguments(part) else {}


def _arguments(part: eqx.Module) -> set[str]:
    return set(inspect.signature(type(part)).parameters)


def nested(name: str, part: Any) -> dict[str, Any]:
    """Return the fields of a part, and of the parts inside it, by their paths."""
    parameters = {}
    for field, value in fields(part).items():
        parameters[f"{name}__{field}"] = value
        parameters.update(nested(f"{name}__{field}", value))
    return parameters


def changed(name: str, part: Any, changes: Mapping[str, Any]) -> Any:
    """Return a copy of a part with some fields changed, given by path; a part is replaced before its own fields are."""
    known = fields(part)
    if not known:
        raise InputError(
            "a part with parameters of its own",
            f"{name!r}, which is {part!r}"[:80],
            f"Set {name} itself, as in set_params({name}=...).",
        )
    whole: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        field, _, rest = path.partition("__")
        if field not in known:
            expected = f"a parameter of {type(part).__name__}: {', '.join(known)}"
            raise InputError(expected, repr(field), "Choose one of these.")
        if rest:
            inner.setdefault(field, {})[rest] = value
        else:
            whole[field] = value
    for field, more in inner.items():
        whole[field] = changed(field, whole.get(field, known[field]), more)
    return dataclasses.replace(part, **whole)
