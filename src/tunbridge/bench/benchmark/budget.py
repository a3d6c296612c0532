"""One budget for every method, in per-example gradients, and a meter that counts optimiser or sampler steps."""

import dataclasses

from tunbridge.core.declared import Checked
from tunbridge.core.errors import InputError
from tunbridge.runtime.loop import Event


@dataclasses.dataclass(frozen=True)
class Budget(Checked):
    """The budget of one fit.

    Parameters
    ----------
    gradients
        Number of per-example gradients of the log likelihood.
    seconds
        Time limit for training, compilation not counted; a fit that reaches it stops and is marked as cut.
    """

    gradients: int
    seconds: float

    def __post_init__(self) -> None:
        if self.gradients < 1 or not self.seconds > 0:
            got = f"{self.gradients} gradients and {self.seconds} seconds"
            raise InputError("a budget above 0", got, "Give more.")


class Meter:
    """A callback for `fit` that counts the steps of all members, over all training runs of a fit."""

    def __init__(self) -> None:
        self._done = 0
        self._now: dict[tuple[int, ...], int] = {}

    def __call__(self, event: Event) -> None:
        """Count a chunk of steps. A step count that has not increased means that a new run has started."""
        lane = tuple(event.members)
        if event.step <= self._now.get(lane, 0):
            self._done += len(lane) * self._now.pop(lane)
        self._now[lane] = event.step

    @property
    def steps(self) -> int:
        """Number of steps so far, summed over members and runs."""
        return self._done + sum(len(lane) * step for lane, step in self._now.items())
