"""The time limit of a fit: seconds of training over all loops that it runs, compilation not counted."""

import contextlib
from collections.abc import Iterator
from time import perf_counter

from tunbridge.core.provenance import Cut


class Clock:
    """Counts the seconds of training of one fit, and records where the fit was cut.

    Each loop starts the clock when its first chunk of steps has come back, so that compilation is not counted, and
    stops it at its end. A fit of several loops (a point estimate, then a normal around it) shares one clock.

    Parameters
    ----------
    limit
        The most seconds of training; None sets no limit, 0 allows no step.
    """

    def __init__(self, limit: float | None = None):
        self.limit = limit
        self.cut: Cut | None = None
        """Where the fit was cut; None while all loops have run to their end."""
        self._share = 1.0
        self._spent = 0.0
        self._since: float | None = None
        self._steps = 0

    def start(self) -> None:
        """Count from here; a clock that runs goes on."""
        if self._since is None:
            self._since = perf_counter()

    def stop(self) -> None:
        """Count no further until the next start."""
        self._spent, self._since = self.seconds, None

    @property
    def seconds(self) -> float:
        """Seconds counted so far."""
        return self._spent + (0.0 if self._since is None else perf_counter() - self._since)

    @property
    def over(self) -> bool:
        """Whether the limit is reached, or the share of it that may be used for now."""
        return self.limit is not None and self.seconds >= self._share * self.limit

    @contextlib.contextmanager
    def up_to(self, share: float) -> Iterator[None]:
        """Inside, only this share of the limit may be used, so that something is left for what comes after."""
        before, self._share = self._share, share
        yield
        self._share = before

    def record(self, step: int, steps: int, finished: bool) -> None:
        """Add a loop that ended after `step` of `steps` steps, `finished` or not. The first that did not is the cut."""
        if not finished and self.cut is None:
            self.cut = Cut(self._steps + step, self._steps + steps, self.limit if self.over else None)
        self._steps += step
