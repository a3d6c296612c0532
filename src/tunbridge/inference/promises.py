"""What methods promise on the exact problems: each declares it in its class, with a tolerance."""

import math
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from tunbridge.core.names import METHODS

Kind = Literal["exact", "biased", "diagonal", "mean", "mode", "none", "refused"]
Promises = Mapping[str, tuple[Kind, float] | tuple[Kind]]
"""What a method's class declares: by problem, the kind and the tolerance of a `Promise`."""


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
