"""Parts of `tunbridge bench`: lists of names and numbers, where jobs run, the progress bar, the tables."""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import joblib

from tunbridge.bench.benchmark.board import page
from tunbridge.bench.benchmark.leaderboard import Leaderboard
from tunbridge.bench.benchmark.published import published
from tunbridge.bench.benchmark.runner import Done, Job
from tunbridge.bench.benchmark.store import Store
from tunbridge.cli import interrupts
from tunbridge.cli.bench import WRITTEN
from tunbridge.core.errors import InputError
from tunbridge.core.files import replacing


def names(given: str) -> list[str]:
    """Split a comma-separated list of names."""
    return [name.strip() for name in given.split(",") if name.strip()]


def numbers(given: str) -> list[int] | None:
    """Parse comma-separated numbers and ranges; None for an empty list.

    Examples
    --------
    >>> numbers("0-2,7")
    [0, 1, 2, 7]
    """
    parsed: list[int] = []
    for part in names(given):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InputError("--splits as numbers and ranges with commas", repr(given), "Write 0-4,7.")
        parsed += range(int(match[1]), int(match[2] or match[1]) + 1)
    return sorted(set(parsed)) or None


def check_jobs(jobs: int) -> None:
    """Raise InputError unless there is at least one process."""
    if jobs < 1:
        raise InputError("--jobs of at least 1", f"{jobs}", "Use as many as there are cores.")


@contextlib.contextmanager
def spread(backend: str, jobs: int) -> Iterator[None]:
    """Run joblib's work on processes of this machine, or on a Dask cluster.

    The cluster is the one whose scheduler is at DASK_SCHEDULER_ADDRESS, else a new one on this machine.
    """
    if backend == "loky":
        with joblib.parallel_config(backend="loky", n_jobs=jobs):
            yield
        return
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError:
        raise InputError("dask for --backend dask", "none", "pip install 'tunbridge[cluster]'") from None
    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    with contextlib.ExitStack() as stack:
        cluster = address or stack.enter_context(
            LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
        )
        stack.enter_context(Client(cluster))
        stack.enter_context(joblib.parallel_config(backend="dask", n_jobs=-1))
        yield


class Bar:
    """A progress bar: rows done, rows in all, the time left and the latest row; hidden if there is no terminal."""

    def __init__(self, plan: Sequence[Job], store: Store, show: bool):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as TimeLeft

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(
            *columns,
            TimeLeft(),
            TextColumn("{task.fields[last]}"),
            transient=True,
            disable=not (show and sys.stderr.isatty()),
            speed_estimate_period=1e9,
        )
        known = store.done()
        ahead = sum(job.identity not in known for job in plan)
        self._task = self._bar.add_task("rows", total=ahead, last="")

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, done: Done) -> None:
        """Count one more row, and show it as the latest."""
        row = done.row
        self._bar.update(self._task, advance=1, last=f"{row['task']} {row['split']} {row['method']} {row['status']}")


@contextlib.contextmanager
def telling(path: Path) -> Iterator[None]:
    """Add to an interrupt how many rows the file of results holds; a file without any is removed."""
    try:
        with interrupts.kept():
            yield
    except KeyboardInterrupt:
        num = 0
        if path.exists():
            with Store(path) as store:
                num = len(store.done())
        if num:
            rows = "1 row" if num == 1 else f"{num} rows"
            sentence = f"{path} holds {rows}; the same command with --resume goes on from there."
            raise KeyboardInterrupt(sentence) from None
        path.unlink(missing_ok=True)
        raise KeyboardInterrupt("Nothing was saved yet.") from None


def write(rows: list[dict[str, Any]], suite: str, out: Path) -> str:
    """Write a suite's rows to the folder as a page, Markdown and CSV; return the table for the terminal."""
    board = Leaderboard.of(rows)
    tables = [str(board)]
    if suite == "uci":
        tables.append(str(board.beside(published(suite))))
    command = shlex.join(["tunbridge", *sys.argv[1:]])
    texts = (page(rows, f"Benchmark: {suite}", command), board.to_markdown(), board.to_csv())
    for name, text in zip(WRITTEN, texts, strict=True):
        with replacing(out / name) as file:
            file.write(text.encode())
    return "\n".join(tables).rstrip()
