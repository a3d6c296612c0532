"""A prior for each array of weights, chosen by its path."""

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.tree import paths
from tunbridge.core.types import Prior, PyTree
from tunbridge.model.priors.delegating import Delegating
from tunbridge.model.priors.normal import Normal


class Part(Module):
    """A pattern of paths, and the prior of what it matches."""

    pattern: str = eqx.field(static=True)
    prior: Prior


def _entries(entries: Mapping[str, Prior] | Sequence[Part]) -> tuple[Part, ...]:
    if isinstance(entries, Mapping):
        entries = tuple(Part(pattern, prior) for pattern, prior in entries.items())
    if not len(entries) or not all(isinstance(entry, Part) for entry in entries):
        raise InputError(
            "a dictionary of patterns and priors", f"{entries!r}"[:80], 'Write {"layers/0/weight": tb.priors.Normal()}.'
        )
    return tuple(entries)


def _default(given: Prior | None) -> Prior:
    return Normal(1.0) if given is None else given


class ByPath(Delegating):
    """Each array of weights under the prior of the first pattern that matches its path.

    Parameters
    ----------
    entries
        Priors by pattern, such as "layers/0/weight", "layers/0/*" or "*/bias" (``*`` matches anything, slashes too).
    default
        The prior of arrays that no pattern matches; None is ``Normal(1.0)``.

    Examples
    --------
    >>> from tunbridge import priors
    >>> prior = priors.ByPath({"layers/0/weight": priors.Laplace(0.5), "*/bias": priors.Normal(2.0)})
    """

    entries: Any = eqx.field(converter=_entries)
    default: Any = eqx.field(default=None, converter=_default)

    def parts(self) -> dict[str, Any]:
        """The priors by pattern, and the default one."""
        return {entry.pattern: entry.prior for entry in self.entries} | {"default": self.default}

    def with_parts(self, parts: dict[str, Any]) -> Prior:
        """Return the same patterns with other priors."""
        return ByPath(tuple(Part(entry.pattern, parts[entry.pattern]) for entry in self.entries), parts["default"])

    def bind(self, weights: PyTree, layout: PyTree) -> Prior:
        """Return the prior with each part bound to its own arrays; InputError for a pattern without any."""
        owners, names = set(self.assign(layout)), paths(layout)
        for entry in self.entries:
            if entry.pattern not in owners:
                raise InputError(
                    f"patterns, each the first to match one of {', '.join(names)}",
                    repr(entry.pattern),
                    "Correct the pattern, or put it before the wider one.",
                )
        return super().bind(weights, layout)

    def assign(self, layout: PyTree) -> list[str]:
        """The first pattern that matches each path."""
        patterns = [entry.pattern for entry in self.entries]
        return [
            next((pattern for pattern in patterns if fnmatch.fnmatchcase(path, pattern)), "default")
            for path in paths(layout)
        ]
