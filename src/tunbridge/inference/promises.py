"""What methods promise on the exact problems, and how wide they were on real tables: each declares it in its class."""

import math
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from tunbridge.core.names import METHODS
from tunbridge.core.types import Likelihood, Logits, NormalNoise

Kind = Literal["exact", "biased", "diagonal", "mean", "mode", "none", "refused"]
Promises = Mapping[str, tuple[Kind, float] | tuple[Kind]]
"""What a method's class declares: by problem, the kind and the tolerance of a `Promise`."""

Spreads = Mapping[Literal["numbers", "classes"], tuple[float, float]]
"""What a method's class declares: least and largest ratio of its epistemic sd to a reference's, by kind of y."""
_SMALL = 5000
"""The most rows for which the small tables that were measured are like the data at hand."""
_SOUND = 0.5, 2.0
"""Ratios between which a method needs no caution."""


def caution(spreads: Spreads, likelihood: Likelihood, rows: int) -> str:
    """Return what is known to be weak about a method's defaults for such data; "" if nothing is."""
    kind: Literal["numbers", "classes"] = "classes" if isinstance(likelihood, Logits) else "numbers"
    least, largest = spreads.get(kind, (1.0, 1.0))
    known = isinstance(likelihood, Logits | NormalNoise) and rows <= _SMALL
    if not known or (least >= _SOUND[0] and largest <= _SOUND[1]):
        return ""
    share = f"{least:g}" if least == largest else f"{least:g} to {largest:g}"
    return (
        f"With its defaults this method's epistemic standard deviation was {share} times the reference posterior's on "
        f"small tables of {kind}: for error bars away from the data use tb.Auto() or a sampler."
    )


class Promise(NamedTuple):
    """What a method's posterior gets right in function space.

    `kind` is "exact" (mean and standard deviation, up to the Monte Carlo error of the default run), "biased" (the same
    with the bias of the default step size, as measured), "diagonal" (the mean, and the standard deviation of
    independent weights of variances 1 / Lambda_ii), "mean", "mode" (the function of the most probable weights), "none",
    or "refused" if the method does not support such a model. `tolerance` is in posterior standard deviations.
    """

    kind: Kind
    tolerance: float = math.inf


class _Table(Mapping[str, dict[str, Promise]]):
    """The promises of every method that declares some, by name; a method is imported when it is asked for."""

    def __getitem__(self, name: str) -> dict[str, Promise]:
        return {problem: Promise(*entry) for problem, entry in getattr(METHODS[name], "promises", {}).items()}

    def __iter__(self) -> Iterator[str]:
        return (name for name in METHODS if self[name])

    def __len__(self) -> int:
        return sum(1 for _ in self)


PROMISES = _Table()
"""Promises by method and problem."""
