"""How the columns of a table become numbers, and back: decided once on the training table, written as JSON."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tunbridge.core.errors import InputError
from tunbridge.datasets.table import listed

_MOST_LEVELS = 100
_MOST_CODES = 20


def _row(number: int) -> str:
    return f"row {number + 1}"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column and how it is read.

    Parameters
    ----------
    name
        As in the table.
    levels
        The values of a category, in order; () for a number.
    date
        Whether the number is a date, in seconds since 1970.
    """

    name: str
    levels: tuple[str, ...] = ()
    date: bool = False

    @classmethod
    def of(cls, name: str, values: pa.ChunkedArray, category: bool = False) -> "Column":
        """A number where the values are, else a category; InputError for what is neither."""
        if is_number(values.type) and not category:
            return cls(name, date=_is_date(values.type))
        if not (_is_text(values.type) or is_number(values.type)):
            raise InputError(
                "columns of numbers, dates, text or yes/no", f"{values.type} in {name!r}", "Leave it out with --ignore."
            )
        texts = _texts(values)
        levels = tuple(sorted(set(texts), key=float if _is_real(values.type) else None))
        if len(levels) > _MOST_LEVELS:
            raise InputError(
                f"at most {_MOST_LEVELS} different values in a column of text",
                f"{len(levels)} in {name!r}, over {len(texts)} rows",
                "Leave it out with --ignore, or group its values.",
            )
        return cls(name, levels)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the numbers it becomes: one a level, or one in all for a number and for two levels."""
        if len(self.levels) < 3:
            return (f"{self.name}={self.levels[-1]}",) if self.levels else (self.name,)
        return tuple(f"{self.name}={level}" for level in self.levels)

    def codes(self, values: pa.ChunkedArray, place: Callable[[int], str] = _row) -> np.ndarray:
        """The number of each row's level; `place` says where a row stands."""
        texts, known = _texts(values), {level: i for i, level in enumerate(self.levels)}
        strange = sorted(set(texts) - set(known))
        if strange:
            row = min(texts.index(level) for level in strange)
            raise InputError(
                f"values of {self.name!r} that were there in training ({listed(list(self.levels))})",
                f"{listed(strange)}, first in {place(row)}",
                "Leave these rows out, or train on data that has them.",
            )
        return np.array([known[text] for text in texts], np.int64)

    def numbers(self, values: pa.ChunkedArray, place: Callable[[int], str] = _row) -> np.ndarray:
        """(rows, outputs): the number itself, or 1 in the place of the level."""
        if not self.levels:
            if not is_number(values.type) or _is_date(values.type) != self.date:
                wanted = "dates" if self.date else "numbers"
                raise InputError(f"{wanted} in {self.name!r}, as in training", f"{values.type}", "Convert the column.")
            return _floats(values)[:, None]
        codes = self.codes(values, place)
        if len(self.levels) < 3:
            return (codes == len(self.levels) - 1).astype(np.float64)[:, None]
        return np.eye(len(self.levels))[codes]


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type is numbers or dates."""
    types = pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or _is_date(kind)


def _is_real(kind: pa.DataType) -> bool:
    return is_number(kind) and not _is_date(kind)


def _is_date(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_boolean(kind)


def _floats(values: pa.ChunkedArray) -> np.ndarray:
    """Numbers as they are; dates as seconds since 1970."""
    if _is_date(values.type):
        micro = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        return micro.to_numpy().astype(np.float64) / 1e6
    return values.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)


def _texts(values: pa.ChunkedArray) -> list[str]:
    if pa.types.is_boolean(values.type):
        return ["yes" if value else "no" for value in values.to_pylist()]
    if pa.types.is_floating(values.type):
        return [repr(value) for value in values.to_pylist()]
    return pc.cast(values, pa.string()).to_pylist()


Task = Literal["regression", "classification"]


@dataclasses.dataclass(frozen=True)
class Encoding:
    """Which columns are inputs and which are targets, and how each is read.

    Parameters
    ----------
    features, targets
        The columns.
    task
        Whether the targets are numbers or the one target is a class.
    """

    features: tuple[Column, ...]
    targets: tuple[Column, ...]
    task: Task

    @classmethod
    def of(
        cls,
        table: pa.Table,
        targets: list[str],
        *,
        ignore: tuple[str, ...] = (),
        categorical: tuple[str, ...] = (),
        task: Task | None = None,
    ) -> "Encoding":
        """Decide from a table without missing values; `task` None asks the target."""
        inputs = [name for name in table.column_names if name not in (*targets, *ignore)]
        if not inputs:
            raise InputError("a column besides the target", "none", "Check --target and --ignore.")
        found = task or (
            "classification" if any(_looks_like_classes(table[name]) for name in targets) else "regression"
        )
        if found == "classification" and len(targets) > 1:
            raise InputError("one target that is a class, or several numbers", listed(targets), "Choose one of them.")
        classes = found == "classification"
        wanted = tuple(Column.of(name, table[name], category=classes) for name in targets)
        for column in wanted:
            if bool(column.levels) != classes:
                raise InputError(
                    "numbers as the target of a regression", f"text in {column.name!r}", "Use --task classification."
                )
            if classes and len(column.levels) < 2:
                raise InputError("a target of at least two classes", f"only {column.levels[0]!r}", "Check the target.")
            if not classes and len(values := table[column.name].unique()) < 2:
                raise InputError(
                    "a target that varies", f"{values[0]} in every row of {column.name!r}", "Check the target."
                )
        return cls(tuple(Column.of(name, table[name], name in categorical) for name in inputs), wanted, found)

    @property
    def columns(self) -> list[str]:
        """The names of the columns that are read as inputs."""
        return [column.name for column in self.features]

    @property
    def text(self) -> list[str]:
        """The columns whose levels are to be read letter by letter."""
        return [column.name for column in self.features if column.levels and column.levels != ("no", "yes")]

    @property
    def kinds(self) -> dict[str, str]:
        """What every cell of the other columns is to be."""
        return {column.name: "a date" if column.date else "a number" for column in self.features if not column.levels}

    @property
    def names(self) -> list[str]:
        """The names of the numbers that the inputs become."""
        return [name for column in self.features for name in column.outputs]

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the target; () where it is a number."""
        return self.targets[0].levels if self.task == "classification" else ()

    def x(self, table: pa.Table, place: Callable[[int], str] = _row) -> np.ndarray:
        """Inputs (rows, numbers) in float64; `place` says where a row of the table stands."""
        return np.concatenate([column.numbers(table[column.name], place) for column in self.features], axis=1)

    def y(self, table: pa.Table) -> np.ndarray:
        """Targets: (rows, targets) in float64, or the number of each row's class (rows,)."""
        if self.task == "classification":
            return self.targets[0].codes(table[self.targets[0].name])
        return np.concatenate([column.numbers(table[column.name]) for column in self.targets], axis=1)

    def to_json(self) -> dict[str, Any]:
        """As plain lists and strings."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, plain: Any) -> "Encoding":
        """The inverse of `to_json`; InputError where it is something else."""
        try:
            features, targets = (tuple(_column(column) for column in plain[side]) for side in ("features", "targets"))
            task: Task = "classification" if plain["task"] == "classification" else "regression"
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("the columns of a fit", f"something else ({error})", "Fit again.") from error
        return cls(features, targets, task)


def _column(plain: dict[str, Any]) -> Column:
    name, levels, date = plain["name"], plain["levels"], plain["date"]
    if not (isinstance(name, str) and isinstance(levels, list) and all(isinstance(level, str) for level in levels)):
        raise ValueError("a column without a name")
    return Column(name, tuple(levels), bool(date))


def _looks_like_classes(values: pa.ChunkedArray) -> bool:
    """Text and yes/no, and whole numbers that count 0, 1, ... up to at most 20 classes, or take two values."""
    if not is_number(values.type):
        return True
    if not pa.types.is_integer(values.type):
        return False
    found = np.unique(values.to_numpy())
    return len(found) == 2 or (len(found) <= _MOST_CODES and np.array_equal(found, np.arange(len(found))))
