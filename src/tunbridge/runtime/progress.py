"""A progress bar, silent where nobody looks."""

import sys
import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """Steps done of all members, steps a second, time left, and the latest statistics."""

    def __init__(self, title: str, total: int, show: bool):
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[facts]}"),
            transient=True,
            disable=not (show and sys.stderr.isatty()),
        )
        self._task = self._bar.add_task(title, total=total, rate="", facts="")
        self._began, self._start = time.perf_counter(), 0

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def resume(self, done: int) -> None:
        """Steps that an earlier run had done: they do not count in the rate."""
        self._start = done
        self._bar.update(self._task, completed=done)

    def update(self, done: int, facts: dict[str, float]) -> None:
        """Show that `done` steps are behind us."""
        rate = (done - self._start) / max(time.perf_counter() - self._began, 1e-9)
        text = "  ".join(f"{name} {value:.4g}" for name, value in facts.items())
        self._bar.update(self._task, completed=done, rate=f"{rate:,.0f} steps/s", facts=text)
