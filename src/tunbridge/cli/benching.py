"""What `tunbridge bench` says and asks: lists of names and numbers, the bar, the table."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import joblib
import numpy as np

from tunbridge.bench.runner import Done, Job
from tunbridge.bench.store import Store
from tunbridge.bench.task import Task
from tunbridge.core.errors import InputError
from tunbridge.core.tables import to_text

RESULTS = "results.sqlite"


def names(given: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in given.split(",") if name.strip()]


def numbers(given: str) -> list[int] | None:
    """Numbers and ranges with commas between them; None where nothing is given.

    Examples
    --------
    >>> numbers("0-2,7")
    [0, 1, 2, 7]
    """
    found: list[int] = []
    for part in names(given):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InputError("--splits as numbers and ranges with commas", repr(given), "Write 0-4,7.")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return sorted(set(found)) or None


def results(out: Path, resume: bool) -> Path:
    """The file of results in a folder that is made; InputError where there is one that is not asked for."""
    path = out / RESULTS
    if out.exists() and not out.is_dir():
        raise InputError("a folder as --out", f"the file {out}", "Name another.")
    if path.exists() and not resume:
        raise InputError("an --out without results in it", f"{path}", "Add --resume, or name another.")
    out.mkdir(parents=True, exist_ok=True)
    return path


def listed(suites: Mapping[str, Callable[[], Sequence[Task]]]) -> str:
    """The suites and their tasks, with what a fit may spend."""
    found = [(suite, task) for suite, make in suites.items() for task in make()]
    rows = [
        {"suite": suite, "task": task.name, "target": task.kind, "splits": task.splits}
        | {"gradients": task.budget.gradients, "seconds": task.budget.seconds}
        for suite, task in found
    ]
    return to_text(rows).rstrip()


@contextlib.contextmanager
def spread(backend: str, jobs: int) -> Iterator[None]:
    """Work goes to processes of this machine, or to a Dask cluster.

    The cluster is the one whose scheduler DASK_SCHEDULER_ADDRESS names, else one of this machine.
    """
    if jobs < 1:
        raise InputError("--jobs of at least 1", f"{jobs}", "Use as many as there are cores.")
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
    """Rows done of all, what was done last, and the time left; nothing where there is no terminal."""

    def __init__(self, plan: Sequence[Job], store: Store, show: bool):
        import sys

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
        """One more."""
        row = done.row
        self._bar.update(self._task, advance=1, last=f"{row['task']} {row['split']} {row['method']} {row['status']}")


def table(rows: list[dict[str, Any]]) -> str:
    """Means over splits of each task and method; how many failed, and why."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["task"], row["method"]), []).append(row)
    said: list[dict[str, Any]] = []
    for (task, method), group in groups.items():
        done = [row for row in group if row["status"] == "done"]
        line: dict[str, Any] = {"task": task, "method": method, "rows": len(done), "failed": len(group) - len(done)}
        for name in ("NLL", "RMSE", "90 % coverage", "accuracy", "ECE"):
            line[name] = _mean([row["figures"].get(name) for row in done])
        for name in ("seconds", "gradients"):
            line[name] = _mean([row["cost"].get(name) for row in done])
        said.append(line)
    failed = [f"{row['task']} {row['split']} {row['method']}: {row['error']}" for row in rows if row["error"]]
    return to_text(said, failed)


def _mean(values: list[float | None]) -> float | str:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else ""
