"""Run a suite: a row for each task, split, method and key, in as many processes as there are, none done twice."""

import contextlib
import dataclasses
import datetime
import logging
import os
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from tunbridge.core.errors import ConvergenceWarning
from tunbridge.core.types import Key
from tunbridge.inference.base import Method
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.standardised import Standardised, fit_standardised
from tunbridge.model.model import Model

logger = logging.getLogger(__name__)

DEFAULTS = ("map", "ensemble", "mcdropout", "laplace", "meanfield", "sghmc", "nuts", *BASELINES)
"""What a suite runs unless it is told: one method a family, and the baselines."""
_THREADS = "NPROC"
"""How many threads XLA, and lanes of members, may use in a process."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One row to be made."""

    suite: str
    task: Task
    split: int
    name: str
    method: Method
    key: int
    tune: bool

    @property
    def identity(self) -> tuple[str, str, int, str, int]:
        """What tells it from other rows."""
        return self.suite, self.task.name, self.split, self.name, self.key


@dataclasses.dataclass(frozen=True)
class Done:
    """A row, and where its time went."""

    row: dict[str, Any]
    fitting: float
    judging: float
    whole: float


@dataclasses.dataclass
class Tally:
    """Where the time of a run went, in seconds of all processes together."""

    rows: int = 0
    failed: int = 0
    fitting: float = 0.0
    judging: float = 0.0
    harness: float = 0.0

    def add(self, done: Done, kept: float) -> None:
        """Count a row, and the seconds it took to keep it."""
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


def plan(
    suite: str,
    tasks: Iterable[Task],
    methods: Mapping[str, Method],
    *,
    splits: Sequence[int] | None = None,
    key: int = 0,
    tune: bool = True,
) -> list[Job]:
    """The rows of a suite, split by split, so that a run that is cut short has all methods on its first splits.

    Parameters
    ----------
    suite, tasks, methods
        The suite's name, its tasks, and methods by name.
    splits
        Their numbers; None is all.
    key
        A number that decides everything random.
    tune
        Whether hyperparameters are chosen; else all methods have their defaults.
    """
    tasks = tuple(tasks)
    for task in tasks:
        for split in splits or ():
            task.check(split)
    chosen = range(max(task.splits for task in tasks)) if splits is None else splits
    return [
        Job(suite, task, split, name, method, key, tune)
        for split in chosen
        for task in tasks
        if split < task.splits
        for name, method in methods.items()
    ]


def run(jobs: Sequence[Job], store: Store, *, each: Callable[[Done], None] = lambda _: None) -> Tally:
    """Make the rows that the store does not have, and keep each as it comes.

    Work is spread by joblib over what ``joblib.parallel_config`` names: one process unless told, several of this
    machine, or a cluster.

    Parameters
    ----------
    jobs
        The rows to be made.
    store
        Where they are kept.
    each
        Is told of each new row.
    """
    known, tally = store.done(), Tally()
    ahead = [job for job in jobs if job.identity not in known]
    parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
    with _threads(parallel.n_jobs), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker stopped")  # joblib renews one that has grown; no row is lost
        for done in parallel(joblib.delayed(work)(job) for job in ahead):
            began = time.perf_counter()
            store.add(done.row)
            tally.add(done, time.perf_counter() - began)
            each(done)
    return tally


@contextlib.contextmanager
def _threads(processes: int) -> Iterator[None]:
    """A share of the cores for each process that is started here."""
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
    """The row of a job; one that fails has its error in its row."""
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
    """Learn, and only then load what is judged on."""
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
    """Gradients of single rows that a fit took; NaN where no step was seen."""
    inner = posterior.posterior if isinstance(posterior, Standardised) else posterior
    return method.gradients_spent(meter.steps, inner, rows) if meter.steps else float("nan")


def learn(task: Task, method: Method, model: Model, rows: Rows, key: Key, meter: Meter) -> Posterior:
    """What a method believes after these rows, within the budget of the task."""
    method = method.within(task.budget.gradients, len(rows.x))
    options: dict[str, Any] = {"max_seconds": task.budget.seconds, "progress": False, "callbacks": [meter]}
    if not task.standardise:
        return method.fit(model, Data(*rows), key=key, **options)
    return fit_standardised(method, model, *rows, key=key, **options)


def _number(*names: Any) -> int:
    """A number of 31 bits that follows from names."""
    return zlib.crc32("/".join(map(str, names)).encode()) >> 1
