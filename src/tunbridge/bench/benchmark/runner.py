"""Run a suite: one result row per task, split, method and key, in parallel, skipping rows that are already stored."""

import contextlib
import dataclasses
import datetime
import logging
import os
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import joblib

from tunbridge.bench.baselines import BASELINES
from tunbridge.bench.benchmark.budget import Meter
from tunbridge.bench.benchmark.judging import judge
from tunbridge.bench.benchmark.store import Store
from tunbridge.bench.benchmark.task import Rows, Task
from tunbridge.bench.benchmark.tuning import Choice, applied, choose
from tunbridge.bench.comparing.compare import as_scored
from tunbridge.bench.comparing.cost import cost
from tunbridge.core import provenance
from tunbridge.core.data import Data
from tunbridge.core.declared import checked
from tunbridge.core.errors import ConvergenceWarning, InputError
from tunbridge.core.types import Key
from tunbridge.inference.base import Method
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.standardised import fit_standardised, inner
from tunbridge.model.model import Model

logger = logging.getLogger(__name__)

DEFAULTS = ("map", "ensemble", "mcdropout", "laplace", "meanfield", "sghmc", "nuts", *BASELINES)
"""The default methods of a suite: one per family, and the baselines."""
_MOST_KEY = 2**32 - 1
"""The largest seed: JAX drops further bits of an integer."""
_THREADS = "NPROC"
"""Environment variable for the number of threads that XLA and parallel members may use in a process."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One result row to compute."""

    suite: str
    task: Task
    split: int
    name: str
    method: Method
    key: int
    tune: bool

    @property
    def identity(self) -> tuple[str, str, int, str, int]:
        """The key of the row in the store, made of suite, task, split, method and key."""
        return self.suite, self.task.name, self.split, self.name, self.key


@dataclasses.dataclass(frozen=True)
class Done:
    """A finished row, with the seconds spent on fitting, on scoring, and in all."""

    row: dict[str, Any]
    fitting: float
    judging: float
    whole: float


@dataclasses.dataclass
class Tally:
    """Rows and seconds of a run, summed over all processes."""

    rows: int = 0
    failed: int = 0
    fitting: float = 0.0
    judging: float = 0.0
    harness: float = 0.0

    def add(self, done: Done, kept: float) -> None:
        """Count a row, and the seconds it took to store it."""
        self.rows += 1
        self.failed += done.row["status"] == "failed"
        self.fitting += done.fitting
        self.judging += done.judging
        self.harness += done.whole - done.fitting - done.judging + kept

    def __str__(self) -> str:
        share = self.harness / self.fitting if self.fitting else 0.0
        return (
            f"{self.rows} rows, {self.failed} failed: {self.fitting:.1f} s of fits, {self.judging:.1f} s of judging, "
            f"{self.harness:.2f} s of the harness itself ({100 * share:.1f} % of the fits)."
        )


@checked
def plan(
    suite: str,
    tasks: Sequence[Task],
    methods: Mapping[str, Method],
    *,
    splits: Sequence[int] | None = None,
    key: int = 0,
    tune: bool = True,
) -> list[Job]:
    """List the rows of a suite, split by split, so that an interrupted run has all methods on its first splits.

    Parameters
    ----------
    suite, tasks, methods
        The suite's name, its tasks, and methods by name.
    splits
        Indices of the splits; None is all.
    key
        An integer from 0 to 2^32 - 1 that seeds everything random.
    tune
        Whether to tune hyperparameters; otherwise all methods use their defaults.
    """
    if not len(tasks):
        raise InputError("at least one task", "none", "Pass tb.bench.SUITES[suite]().")
    if not 0 <= key <= _MOST_KEY:
        raise InputError(f"a key from 0 to {_MOST_KEY}", f"{key}", "Use 0.")
    for task in tasks:
        for split in () if splits is None else splits:
            task.check(split)
    chosen = range(max(task.splits for task in tasks)) if splits is None else splits
    return [
        Job(suite, task, split, name, method, key, tune)
        for split in chosen
        for task in tasks
        if split < task.splits
        for name, method in methods.items()
    ]


@checked
def run(jobs: Sequence[Job], store: Store, *, each: Callable[[Done], None] = lambda _: None) -> Tally:
    """Compute the rows that are missing from the store, and store each as soon as it is finished.

    Work is distributed by joblib as ``joblib.parallel_config`` says: over several processes of this machine, or a
    cluster; by default one process does everything.

    Parameters
    ----------
    jobs
        The rows to compute.
    store
        The store of finished rows.
    each
        Called with each new row.
    """
    known, tally = store.done(), Tally()
    ahead = [job for job in jobs if job.identity not in known]
    parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
    with _threads(parallel.n_jobs), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker stopped")  # joblib replaces workers that have grown; no row is lost
        for done in parallel(joblib.delayed(work)(job) for job in ahead):
            began = time.perf_counter()
            store.add(done.row)
            tally.add(done, time.perf_counter() - began)
            each(done)
    return tally


@contextlib.contextmanager
def _threads(processes: int) -> Iterator[None]:
    """Limit each worker process to its share of the cores."""
    before = os.environ.get(_THREADS)
    if processes != 1 and before is None:
        cores = joblib.cpu_count()
        os.environ[_THREADS] = str(max(1, cores // min(cores, processes) if processes > 0 else 1))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_THREADS, None)


def work(job: Job) -> Done:
    """Compute the row of a job; if the job fails, the row has the error."""
    began = time.perf_counter()
    row: dict[str, Any] = {
        **dict(zip(("suite", "task", "split", "method", "key"), job.identity, strict=True)),
        **{"status": "done", "error": None, "kind": job.task.kind, "settings": {}, "train_rows": None},
        **{"test_rows": None, "figures": {}, "cost": {}, "curves": {}, "provenance": _provenance()},
    }
    clock = {"fit": 0.0, "judge": 0.0}
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", ConvergenceWarning)
            _fill(job, row, clock)
        row["provenance"]["doubts"] = list(dict.fromkeys(str(warning.message) for warning in caught))
    except Exception as error:  # a failed row is a result
        row |= {"status": "failed", "error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        row |= {"figures": {}, "curves": {}}
        logger.info("%s failed: %s", "/".join(map(str, job.identity)), row["error"])
    return Done(row, clock["fit"], clock["judge"], time.perf_counter() - began)


def _provenance() -> dict[str, Any]:
    made = provenance.record(None, None, 0.0)
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"versions": list(made.versions), "device": made.device, "date": date}


def _fill(job: Job, row: dict[str, Any], clock: dict[str, float]) -> None:
    """Fit, and only then load the held-out data and score on it."""
    task = job.task
    train = task.train(job.split)
    row["train_rows"] = len(train.x)
    began = time.perf_counter()
    try:
        posterior = _learn(job, train, row)
    finally:
        clock["fit"] = time.perf_counter() - began
    held = task.held(job.split)
    row["test_rows"] = len(held.test.x)
    began = time.perf_counter()
    row["figures"], row["curves"] = judge(task, train, held, posterior)
    row["cost"] |= cost(posterior, held.test.x, as_scored(task.model, train, held.test))
    clock["judge"] = time.perf_counter() - began


def _learn(job: Job, train: Rows, row: dict[str, Any]) -> Posterior:
    task, key = job.task, jax.random.key(job.key)
    key_rows = jax.random.fold_in(key, _number(task.name, job.split))
    key_fit = jax.random.fold_in(key_rows, _number(job.name))

    def fit(method: Method, model: Model, rows: Rows, key: Key) -> Posterior:
        return learn(task, method, model, rows, key, Meter())

    choice = Choice({})
    if job.tune and task.tune:
        choice = choose(job.name, job.method, task.model, train, key_rows, fit)
    method, model = applied(job.method, task.model, choice.settings)
    row["settings"], meter, began = dict(choice.settings), Meter(), time.perf_counter()
    posterior = learn(task, method, model, train, key_fit, meter)
    row["cost"] = {"seconds": time.perf_counter() - began, "tuning seconds": choice.seconds}
    row["cost"]["gradients"] = _spent(method, meter, posterior, len(train.x))
    if posterior.cut is not None:
        row["provenance"]["cut"] = str(posterior.cut)
    if choice.scores:
        row["provenance"]["validation NLL"] = list(choice.scores)
    return posterior


def _spent(method: Method, meter: Meter, posterior: Posterior, rows: int) -> float:
    """Per-example gradients that a fit took; NaN if no steps were counted."""
    fitted = inner(posterior)
    return method.gradients_spent(meter.steps, fitted, rows) if meter.steps else float("nan")


def learn(task: Task, method: Method, model: Model, rows: Rows, key: Key, meter: Meter) -> Posterior:
    """Fit a method to rows within the budget of the task, and return its posterior."""
    method = method.within(task.budget.gradients, len(rows.x))
    options: dict[str, Any] = {"max_seconds": task.budget.seconds, "progress": False, "callbacks": [meter]}
    if not task.standardise:
        return method.fit(model, Data(*rows), key=key, **options)
    return fit_standardised(method, model, *rows, key=key, **options)


def _number(*names: Any) -> int:
    """A 31-bit hash of the names, the same in every process."""
    return zlib.crc32("/".join(map(str, names)).encode()) >> 1
