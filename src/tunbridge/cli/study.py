"""Read a table into training and test rows, and report on a comparison: shared by `fit`, `compare` and others."""

import dataclasses
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
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
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model

_FEWEST, _FEWEST_HELD = 10, 2


@dataclasses.dataclass(frozen=True)
class Rows:
    """A table that was read and encoded, split into training and test rows."""

    path: Path
    table: pa.Table
    numbers: np.ndarray
    """Each row's number in the file; the first is 1."""
    encoding: Encoding
    model: Model
    """The default model for this target, with the likelihood, prior and hidden layers that were asked for."""
    train: np.ndarray
    test: np.ndarray
    left_out: int
    conventions: Conventions
    """How ambiguous cells (decimal commas, dates) were read."""
    notes: tuple[str, ...]
    """Notes on how the file was read."""

    @classmethod
    def read(
        cls,
        path: Path,
        targets: list[str],
        *,
        task: Task | None = None,
        parts: defaults.Parts = defaults.DENSE,
        likelihood: str | None = None,
        prior: str | None = None,
        ignore: Sequence[str] = (),
        categorical: Sequence[str] = (),
        drop_missing: bool = False,
        test_share: float = 0.2,
        hidden: str | None = None,
        seed: int = 0,
    ) -> "Rows":
        """Read and check a table, and split it at random; `parts` are those of the model that are not named."""
        family = None if likelihood is None else defaults.named_likelihood(likelihood)
        weights = parts.prior() if prior is None else defaults.named_prior(prior)
        units = None if hidden is None else widths(hidden)
        sheet = tables.read(path, categorical)
        table = sheet.table
        tables.require(table, [*targets, *ignore, *categorical], path)
        if clash := sorted(set(targets) & set(ignore)):
            raise InputError("a target that is not ignored", tables.listed(clash), "Change --target or --ignore.")
        used = [name for name in table.column_names if name not in ignore]
        classes = targets if task == "classification" else []
        sheet.refuse_odd(dict.fromkeys(name for name in used if name not in (*categorical, *classes)))
        num, kept = table.num_rows, np.arange(table.num_rows)
        if drop_missing:
            table, kept = tables.drop_missing(table, used)
        else:
            sheet.refuse_missing(used)
        unique = list(dict.fromkeys(targets))
        task = _task(task, likelihood, family, unique, table)
        encoding = Encoding.of(table, unique, ignore=tuple(ignore), categorical=tuple(categorical), task=task)
        train, test = _split(table.num_rows, test_share, seed)
        model = Model(parts.network(len(train), units), weights, _bound(family, encoding, parts))
        left_out, notes = num - len(kept), sheet.notes
        return cls(path, table, kept + 1, encoding, model, train, test, left_out, sheet.conventions, notes)

    def part(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (x, y) of the given rows."""
        subset = self.table.take(rows)
        return self.encoding.x(subset), self.encoding.y(subset)

    def said(self) -> list[str]:
        """Return sentences that say how the table was read."""
        kinds = [_kind(column) for column in self.encoding.features]
        categories = sum(kind != "a number" for kind in kinds)
        words = list(self.notes)
        words += [f"Target {column.name!r}: {_kind(column)}." for column in self.encoding.targets]
        words.append(f"{len(kinds)} inputs: {len(kinds) - categories} numbers, {categories} categories.")
        dropped = f", {self.left_out} left out with missing values" if self.left_out else ""
        words.append(
            f"{self.table.num_rows} rows{dropped}: {len(self.train)} for training, {len(self.test)} for testing."
        )
        return words

    def judge(
        self,
        methods: dict[str, Method],
        *,
        seed: int,
        checkpoint: Path,
        progress: bool,
        baselines: bool = False,
        seconds: float | None = None,
    ) -> Comparison:
        """Fit each method to the training rows, and score it on the test rows."""
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
        """Return the verdict of the test rows on the recommended method, or on the only one."""
        return comparison.verdict(None, [target.name for target in self.encoding.targets], self.encoding.classes)

    def summary(self, comparison: Comparison, *sentences: str) -> str:
        """Return the verdict and the comparison's sentences, and others that follow, for the terminal."""
        told = (self.verdict(comparison), *comparison.sentences, *sentences)
        return "\n".join(textwrap.fill(sentence, 118) for sentence in told)

    def report(self, title: str, comparison: Comparison, seed: int, command: str = "", *sections: Section) -> str:
        """Return the HTML report of a comparison on these rows; `command` fits the recommended method."""
        cells = self.table.take(self.test)
        facts = {"file": self.path.name, "rows": " ".join(self.said()), "seed": str(seed)}
        study = Study(
            title=title,
            lead=f"{self.path.name}: {len(self.train)} rows for training, {len(self.test)} for testing.",
            encoding=self.encoding,
            comparison=comparison,
            x=self.encoding.x(cells),
            cells=cells,
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


def _task(
    task: Task | None, likelihood: str | None, family: Likelihood | None, targets: list[str], table: pa.Table
) -> Task | None:
    """Return the likelihood's task, or `task` if none is named; InputError if the table or --task does not fit it."""
    if family is None:
        return task
    fits: Task = "classification" if isinstance(family, OfClasses) else "regression"
    if task not in (None, fits):
        raise InputError(f"--task {fits} for --likelihood {likelihood}", f"--task {task}", "Change one of them.")
    for name in targets:
        if (fits == "regression" or isinstance(family, Ordinal)) and not is_number(table[name].type):
            raise InputError(
                f"numbers in {name!r} for --likelihood {likelihood}",
                f"{table[name].type}",
                "Number its values in their order, or leave --likelihood out.",
            )
    return fits


def _bound(family: Likelihood | None, encoding: Encoding, parts: defaults.Parts) -> Likelihood:
    """Return the likelihood, with its number of classes; the default one if none is named."""
    num = len(encoding.classes)
    if family is None:
        return defaults.of_classes(num) if num else parts.of_numbers()
    return family.bind(family.check(jnp.asarray(np.arange(num)))) if num else family


def widths(hidden: str) -> tuple[int, ...]:
    """Parse units per hidden layer."""
    try:
        return tuple(int(width) for width in hidden.split(",") if width.strip())
    except ValueError:
        raise InputError("--hidden as whole numbers with commas", repr(hidden), "Write 50,50.") from None


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with every score as a float, ready for JSON."""
    return [{name: value if isinstance(value, str) else float(value) for name, value in row.items()} for row in rows]
