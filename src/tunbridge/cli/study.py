"""From a file to training and test rows, and from a comparison to its report: what `fit` and `compare` share."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from tunbridge.bench.comparing.compare import Comparison, compare
from tunbridge.bench.comparing.report import Study, report
from tunbridge.bench.comparing.report.sections import Section
from tunbridge.core.errors import InputError
from tunbridge.core.types import Likelihood
from tunbridge.datasets import table as tables
from tunbridge.datasets.cells import Conventions
from tunbridge.datasets.encoding import Column, Encoding, Task, is_number
from tunbridge.datasets.scaling import split_rows
from tunbridge.inference.base import Method
from tunbridge.model import defaults
from tunbridge.model.likelihoods import Ordinal
from tunbridge.model.model import Model
from tunbridge.model.networks import MLP

_FEWEST, _FEWEST_HELD = 10, 2


@dataclasses.dataclass(frozen=True)
class Rows:
    """A table read for learning, in two parts."""

    path: Path
    table: pa.Table
    numbers: np.ndarray
    """Of its rows in the file; the first is 1."""
    encoding: Encoding
    model: Model
    """The default one for this target, perhaps with other hidden layers."""
    train: np.ndarray
    test: np.ndarray
    left_out: int
    conventions: Conventions
    """What its cells were found to mean where they could mean two things."""
    notes: tuple[str, ...]
    """On how the file was read."""

    @classmethod
    def read(
        cls,
        path: Path,
        targets: list[str],
        *,
        task: Task | None,
        likelihood: str | None,
        prior: str,
        ignore: list[str],
        categorical: list[str],
        drop_missing: bool,
        test_share: float,
        hidden: str | None,
        seed: int,
    ) -> "Rows":
        """Read, check, and split at random."""
        sheet = tables.read(path, categorical)
        whole = sheet.table
        tables.require(whole, [*targets, *ignore, *categorical], path)
        if clash := sorted(set(targets) & set(ignore)):
            raise InputError("a target that is not ignored", tables.listed(clash), "Change --target or --ignore.")
        used = [name for name in whole.column_names if name not in ignore]
        classes = targets if task == "classification" else []
        sheet.refuse_odd(dict.fromkeys(name for name in used if name not in (*categorical, *classes)))
        num, kept = whole.num_rows, np.arange(whole.num_rows)
        if drop_missing:
            whole, kept = tables.drop_missing(whole, used)
        else:
            sheet.refuse_missing(used)
        unique = list(dict.fromkeys(targets))
        task = _task(task, likelihood, unique, whole)
        encoding = Encoding.of(whole, unique, ignore=tuple(ignore), categorical=tuple(categorical), task=task)
        train, test = _split(whole.num_rows, test_share, seed)
        model = _model(encoding, likelihood, prior, hidden)
        left_out, notes = num - len(kept), sheet.notes
        return cls(path, whole, kept + 1, encoding, model, train, test, left_out, sheet.conventions, notes)

    def part(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of some rows."""
        some = self.table.take(rows)
        return self.encoding.x(some), self.encoding.y(some)

    def said(self) -> list[str]:
        """How the table was read."""
        kinds = [_kind(column) for column in self.encoding.features]
        categories = sum(kind != "a number" for kind in kinds)
        words = list(self.notes)
        words += [f"Target {column.name!r}: {_kind(column)}." for column in self.encoding.targets]
        words.append(f"{len(kinds)} inputs: {len(kinds) - categories} numbers, {categories} categories.")
        dropped = f", {self.left_out} left out with missing values" if self.left_out else ""
        words.append(
            f"{self.table.num_rows} rows{dropped}: {len(self.train)} to learn from, {len(self.test)} to judge by."
        )
        return words

    def judge(
        self,
        methods: dict[str, Method],
        *,
        baselines: bool,
        seed: int,
        seconds: float | None,
        checkpoint: Path,
        progress: bool,
    ) -> Comparison:
        """The methods on the default model, fitted to the training rows and judged on the others."""
        train, test, key = self.part(self.train), self.part(self.test), jax.random.key(seed)
        return compare(
            self.model,
            train,
            test,
            methods,
            baselines=baselines,
            key=key,
            max_seconds=seconds,
            checkpoint=checkpoint,
            progress=progress,
        )

    def verdict(self, comparison: Comparison) -> str:
        """What the test rows say about the recommended method, or the only one."""
        return comparison.verdict(None, [target.name for target in self.encoding.targets], self.encoding.classes)

    def report(self, title: str, comparison: Comparison, seed: int, command: str = "", *sections: Section) -> str:
        """The page about a comparison on these rows; `command` fits the method that it recommends."""
        some = self.table.take(self.test)
        facts = {"file": self.path.name, "rows": " ".join(self.said()), "seed": str(seed)}
        study = Study(
            title=title,
            lead=f"{self.path.name}: {len(self.train)} rows to learn from, {len(self.test)} to judge by.",
            encoding=self.encoding,
            comparison=comparison,
            x=self.encoding.x(some),
            cells=some,
            rows=self.numbers[self.test],
            facts=facts,
            command=command,
        )
        return report(study, *sections)


def _kind(column: Column) -> str:
    return (
        f"one of {len(column.levels)} classes ({tables.listed(list(column.levels))})" if column.levels else "a number"
    )


def _split(num: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    if num < _FEWEST:
        raise InputError(f"at least {_FEWEST} rows", f"{num}", "Gather more data.")
    if not 0 <= seed < 2**32:
        raise InputError("a --seed from 0 to 4294967295", f"{seed}", "Use 0.")
    if not _FEWEST_HELD <= share * num <= num - _FEWEST_HELD:
        raise InputError("a --test-share that leaves rows on both sides", f"{share}", "Use 0.2.")
    train, test = split_rows(num, jax.random.key(seed), share)
    return np.sort(train), np.sort(test)


def _task(task: Task | None, likelihood: str | None, targets: list[str], table: pa.Table) -> Task | None:
    """The task that the likelihood is for, where one is named; InputError where the table or --task is for another."""
    if likelihood is None:
        return task
    fits: Task = "classification" if likelihood == "ordinal" else "regression"
    if task not in (None, fits):
        raise InputError(f"--task {fits} for --likelihood {likelihood}", f"--task {task}", "Change one of them.")
    for name in targets:
        if not is_number(table[name].type):
            raise InputError(
                f"numbers in {name!r} for --likelihood {likelihood}",
                f"{table[name].type}",
                "Number its values in their order, or leave --likelihood out.",
            )
    return fits


def _model(encoding: Encoding, likelihood: str | None, prior: str, hidden: str | None) -> Model:
    made: Likelihood = defaults.of_classes(len(encoding.classes)) if encoding.classes else defaults.of_numbers()
    if likelihood is not None:
        made = Ordinal(len(encoding.classes)) if likelihood == "ordinal" else defaults.LIKELIHOODS[likelihood]()
    network = defaults.network() if hidden is None else MLP(_widths(hidden))
    return Model(network, defaults.PRIORS[prior](), made)


def _widths(hidden: str) -> tuple[int, ...]:
    try:
        return tuple(int(width) for width in hidden.split(",") if width.strip())
    except ValueError:
        raise InputError("--hidden as whole numbers with commas", repr(hidden), "Write 50,50.") from None


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Figures as JSON takes them."""
    return [{name: value if isinstance(value, str) else float(value) for name, value in row.items()} for row in rows]
