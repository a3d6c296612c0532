"""`tunbridge bench`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

import tunbridge
from tunbridge.cli import options
from tunbridge.runtime import programs

_RESULTS = "results.sqlite"
WRITTEN = ("report.html", "table.md", "table.csv")
"""Files written beside the results."""
_SUITES = Path(tunbridge.__file__).parent / "bench" / "benchmark" / "suites.json"
"""Read as a file, because importing its package would import JAX."""


def bench(
    suite: Annotated[str, typer.Argument(help="suite to run; see --list")] = "",
    methods: Annotated[
        str,
        typer.Option(
            "--methods", "-m", help="methods, separated by commas (default: one per family, and the baselines)"
        ),
    ] = "",
    tasks: Annotated[str, typer.Option("--tasks", help="tasks, separated by commas (default: all of the suite)")] = "",
    splits: Annotated[str, typer.Option("--splits", help="splits, as in 0-4,7 (default: all)")] = "",
    out: Annotated[Path, typer.Option("--out", "-o", help="write the results to this folder")] = Path("bench"),
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="number of processes to run at once")] = 1,
    backend: Annotated[
        Literal["loky", "dask"], typer.Option(help="run on processes of this machine or on a Dask cluster")
    ] = "loky",
    gradients: Annotated[
        int | None, typer.Option(help="per-example gradient budget per fit (default: the task's)")
    ] = None,
    seconds: options.Seconds = None,
    no_tune: Annotated[bool, typer.Option("--no-tune", help="do not tune: use every method's defaults")] = False,
    seed: options.Seed = 0,
    resume: Annotated[bool, typer.Option("--resume", help="continue with the results in the folder")] = False,
    list_: Annotated[bool, typer.Option("--list", help="list the suites and their tasks and exit")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Run methods on a suite of tasks, with the same budget and tuning rule for all, and write a report."""
    if list_:
        print(_listed())
        return
    options.check_seconds(seconds)
    _check(out, resume)
    programs.settle_order()

    from tunbridge.bench.benchmark import runner, suites
    from tunbridge.bench.benchmark.store import Store
    from tunbridge.bench.comparing.compare import named
    from tunbridge.cli import benching
    from tunbridge.core import files

    chosen = [task.with_budget(gradients, seconds) for task in suites.tasks(suite, benching.names(tasks))]
    asked = named(benching.names(methods) or runner.DEFAULTS)
    plan = runner.plan(suite, chosen, asked, splits=benching.numbers(splits), key=seed, tune=not no_tune)
    benching.check_jobs(jobs)
    path = out / _RESULTS
    rules = {"gradients": gradients, "seconds": seconds, "tune": not no_tune}
    with files.locked(out), benching.telling(path):
        _check(out, resume)  # another command may have written to it
        with Store(path, rules) as store, benching.spread(backend, jobs), benching.Bar(plan, store, not quiet) as bar:
            tally = runner.run(plan, store, each=bar.advance)
            rows = [row for row in store.rows() if row["suite"] == suite]
        print(benching.write(rows, suite, out))
    print(f"{tally}\nResults: {path}  Report: {out / 'report.html'}")


def _check(out: Path, resume: bool) -> None:
    """Raise InputError if the folder holds results that the command does not continue, or others of their names."""
    options.check_folder(out, [_RESULTS], resume, "add --resume")
    options.check_folder(out, WRITTEN, (out / _RESULTS).exists(), "move it")


def _listed() -> str:
    """Return a table of the suites and their tasks, with the budget of a fit."""
    from tunbridge.core.tables import to_text

    suites = json.loads(_SUITES.read_text(encoding="utf-8"))
    return to_text(
        [
            {"suite": suite, "task": name, **task, "gradients": plan["gradients"], "seconds": plan["seconds"]}
            for suite, plan in suites.items()
            for name, task in plan["tasks"].items()
        ]
    ).rstrip()
