"""A progress bar in a terminal or a notebook; silent elsewhere."""

import html
import sys
import time
from types import TracebackType
from typing import Any, Protocol

_COMPILING = "compiling ..."


class Bar:
    """A progress bar: steps done by all members, steps per second, time left, and the latest statistics.

    Until the first steps return it shows that their program is being compiled.
    """

    def __init__(self, title: str, total: int, show: bool):
        self._screen: _Screen = _Silent()
        if show and _in_notebook():
            self._screen = _Notebook(title, total)
        elif show and sys.stderr.isatty():
            self._screen = _Terminal(title, total)
        self._began, self._start = time.perf_counter(), 0

    def __enter__(self) -> "Bar":
        self._screen.start()
        self._screen.show(0, 0.0, _COMPILING)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._screen.stop()

    def resume(self, done: int) -> None:
        """Set the steps done by an earlier run, which do not count in the rate."""
        self._start = done
        self._screen.show(done, 0.0, _COMPILING)

    def update(self, done: int, facts: dict[str, float]) -> None:
        """Show `done` steps and the statistics `facts`."""
        rate = (done - self._start) / max(time.perf_counter() - self._began, 1e-9)
        self._screen.show(done, rate, "  ".join(f"{name} {value:.4g}" for name, value in facts.items()))


class _Screen(Protocol):
    def start(self) -> None: ...
    def show(self, done: int, rate: float, facts: str) -> None: ...
    def stop(self) -> None: ...


class _Silent:
    """A screen that shows nothing."""

    def start(self) -> None:
        """Do nothing."""

    def show(self, done: int, rate: float, facts: str) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class _Terminal:
    """A line in the terminal, removed when the run ends."""

    def __init__(self, title: str, total: int):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[facts]}"),
            transient=True,
        )
        self._task = self.bar.add_task(title, total=total, rate="", facts=_COMPILING)

    def start(self) -> None:
        self.bar.start()

    def show(self, done: int, rate: float, facts: str) -> None:
        self.bar.update(self._task, completed=done, rate=f"{rate:,.0f} steps/s" if rate else "", facts=facts)

    def stop(self) -> None:
        self.bar.stop()


class _Notebook:
    """An HTML bar below the notebook cell, cleared when the run ends."""

    def __init__(self, title: str, total: int):
        self._title, self._total = title, total
        self._handle: Any = None

    def start(self) -> None:
        from IPython.display import HTML, display

        self._handle = display(HTML(""), display_id=True)

    def show(self, done: int, rate: float, facts: str) -> None:
        left = f"{(self._total - done) / rate:,.0f} s left" if rate else ""
        speed = f"{rate:,.0f} steps/s" if rate else ""
        words = "  ".join(filter(None, (f"{self._title} {done:,}/{self._total:,}", speed, left, facts)))
        self._draw(f'<progress value="{done}" max="{self._total}"></progress> {html.escape(words)}')

    def stop(self) -> None:
        self._draw("")

    def _draw(self, text: str) -> None:
        from IPython.display import HTML

        if self._handle is not None:
            self._handle.update(HTML(text))


def _in_notebook() -> bool:
    """Whether this process is a Jupyter kernel, which can show HTML."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return type(get_ipython()).__name__ == "ZMQInteractiveShell"
