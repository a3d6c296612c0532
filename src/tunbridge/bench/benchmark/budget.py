"""The same budget for every method, in gradients of single rows, and a meter of the steps that are taken."""

import dataclasses

from tunbridge.core.declared import Checked
from tunbridge.core.errors import InputError
from tunbridge.runtime.loop import Event


@dataclasses.dataclass(frozen=True)
class Budget(Checked):
    """What one fit may spend.

    Parameters
    ----------
    gradients
        Gradients of the log likelihood of single rows.
    seconds
        The most seconds of training, compilation not counted, after which a fit ends where it is and is marked as cut.
    """

    gradients: int
    seconds: float

    def __post_init__(self) -> None:
        if self.gradients < 1 or not self.seconds > 0:
            got = f"{self.gradients} gradients and {self.seconds} seconds"
            raise InputError("a budget above 0", got, "Give more.")


class Meter:
    """A callback of `fit` that counts the steps of all members, over all that a fit trains."""

    def __init__(self) -> None:
        self._done = 0
        self._now: dict[tuple[int, ...], int] = {}

    def __call__(self, event: Event) -> None:
        """Count a chunk. A run begins with a step or a stride, so that a count that does not rise is another run's."""
        lane = tuple(event.members)
        if event.step <= self._now.get(lane, 0):
            self._done += len(lane) * self._now.pop(lane)
        self._now[lane] = event.step

    @property
    def steps(self) -> int:
        """Steps so far."""
        return self._done + sum(len(lane) * step for lane, step in self._now.items())
