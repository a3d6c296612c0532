"""The time limit of a fit, in seconds of training over all its loops, without compilation."""

import contextlib
from collections.abc import Iterator
from time import perf_counter

from tunbridge.core.provenance import Cut


class Clock:
    """Counts the seconds of training of one fit, and records where the fit was stopped early.

    Each loop starts the clock when its first chunk of steps has returned, so that compilation is not counted, and stops
    it at the end of the loop. The loops of a fit (a point estimate, then a normal around it) share one clock.

    Parameters
    ----------
    limit
        Maximum seconds of training; None sets no limit, 0 allows no step.
    """

    def __init__(self, limit: float | None = None):
        self.limit = limit
        self.cut: Cut | None = None
        """Where the fit was stopped early; None if no loop was."""
        self._share = 1.0
        self._spent = 0.0
        self._since: float | None = None
        self._steps = 0

    def start(self) -> None:
        """Start counting; a clock that is already running is left as it is."""
        if self._since is None:
            self._since = perf_counter()

    def stop(self) -> None:
        """Stop counting until the next start."""
        self._spent, self._since = self.seconds, None

    @property
    def seconds(self) -> float:
        """Seconds counted so far."""
        return self._spent + (0.0 if self._since is None else perf_counter() - self._since)

    @property
    def over(self) -> bool:
        """Whether the limit is reached, or the share of it set by `up_to`."""
        return self.limit is not None and self.seconds >= self._share * self.limit

    @contextlib.contextmanager
    def up_to(self, share: float) -> Iterator[None]:
        """Context in which only this share of the limit may be used, so that time is left for later loops."""
        before, self._share = self._share, share
        yield
        self._share = before

    def record(self, step: int, steps: int, finished: bool) -> None:
        """Add a loop that ended after `step` of `steps` steps; the first one that is not `finished` sets `cut`."""
        if not finished and self.cut is None:
            self.cut = Cut(self._steps + step, self._steps + steps, self.limit if self.over else None)
        self._steps += step
