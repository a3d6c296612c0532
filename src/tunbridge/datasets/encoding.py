"""How columns of a table are encoded as numbers: decided once on the training table, and stored as JSON."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tunbridge.core.errors import InputError
from tunbridge.datasets.cells import as_array
from tunbridge.datasets.table import listed

_MOST_LEVELS = 100
_MOST_CODES = 20


def _row(number: int) -> str:
    return f"row {number + 1}"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table and how it is encoded.

    Parameters
    ----------
    name
        The name of the column in the table.
    levels
        The values of a categorical column, in order; () for a numeric column.
    date
        Whether the column is a date, encoded in seconds since 1970.
    """

    name: str
    levels: tuple[str, ...] = ()
    date: bool = False

    @classmethod
    def of(cls, name: str, values: pa.ChunkedArray, category: bool = False) -> "Column":
        """Return a numeric column for numbers and dates, else a categorical one; InputError for other types."""
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
        """Names of the encoded features, one per level, or a single one for a numeric column or two levels."""
        if len(self.levels) < 3:
            return (f"{self.name}={self.levels[-1]}",) if self.levels else (self.name,)
        return tuple(f"{self.name}={level}" for level in self.levels)

    def codes(self, values: pa.ChunkedArray, place: Callable[[int], str] = _row) -> np.ndarray:
        """Index of the level of each row; `place` names a row in error messages."""
        texts, known = _texts(values), {level: i for i, level in enumerate(self.levels)}
        unknown = sorted(set(texts) - set(known))
        if unknown:
            row = min(texts.index(level) for level in unknown)
            raise InputError(
                f"values of {self.name!r} that were there in training ({listed(list(self.levels))})",
                f"{listed(unknown)}, first in {place(row)}",
                "Leave these rows out, or train on data that has them.",
            )
        return np.array([known[text] for text in texts], np.int64)

    def numbers(self, values: pa.ChunkedArray, place: Callable[[int], str] = _row) -> np.ndarray:
        """Encoded features (rows, outputs): the number itself, a 0/1 indicator for two levels, or a one-hot code."""
        if not self.levels:
            if not is_number(values.type) or _is_date(values.type) != self.date:
                kind = "dates" if self.date else "numbers"
                raise InputError(f"{kind} in {self.name!r}, as in training", f"{values.type}", "Convert the column.")
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
    """Numbers in float64; dates as seconds since 1970."""
    if _is_date(values.type):
        return _floats(values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())) / 1e6
    return as_array(values.cast(pa.float64(), safe=False)).copy()


def _texts(values: pa.ChunkedArray) -> list[str]:
    if pa.types.is_boolean(values.type):
        return ["yes" if value else "no" for value in values.to_pylist()]
    if pa.types.is_floating(values.type):
        return [repr(value) for value in values.to_pylist()]
    return pc.cast(values, pa.string()).to_pylist()


Task = Literal["regression", "classification"]


@dataclasses.dataclass(frozen=True)
class Encoding:
    """Which columns are inputs and which are targets, and how each is encoded.

    Parameters
    ----------
    features, targets
        The input columns and the target columns.
    task
        "regression" for numeric targets, "classification" for a single target that is a class.
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
        """Decide the encoding from a table without missing values; with `task` None the target decides the task."""
        inputs = [name for name in table.column_names if name not in (*targets, *ignore)]
        if not inputs:
            raise InputError("a column besides the target", "none", "Check --target and --ignore.")
        chosen_task = task or (
            "classification" if any(_looks_like_classes(table[name]) for name in targets) else "regression"
        )
        if chosen_task == "classification" and len(targets) > 1:
            raise InputError("one target that is a class, or several numbers", listed(targets), "Choose one of them.")
        classes = chosen_task == "classification"
        target_columns = tuple(Column.of(name, table[name], category=classes) for name in targets)
        for column in target_columns:
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
        return cls(
            tuple(Column.of(name, table[name], name in categorical) for name in inputs), target_columns, chosen_task
        )

    @property
    def columns(self) -> list[str]:
        """Names of the input columns."""
        return [column.name for column in self.features]

    @property
    def text(self) -> list[str]:
        """Names of the input columns to be read as text, because their levels are strings."""
        return [column.name for column in self.features if column.levels and column.levels != ("no", "yes")]

    @property
    def kinds(self) -> dict[str, str]:
        """The kind, "a date" or "a number", that every cell of each numeric input column must have."""
        return {column.name: "a date" if column.date else "a number" for column in self.features if not column.levels}

    @property
    def names(self) -> list[str]:
        """Names of the encoded input features."""
        return [name for column in self.features for name in column.outputs]

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the target; () for regression."""
        return self.targets[0].levels if self.task == "classification" else ()

    def x(self, table: pa.Table, place: Callable[[int], str] = _row) -> np.ndarray:
        """Encoded inputs (rows, features) in float64; `place` names a row in error messages."""
        return np.concatenate([column.numbers(table[column.name], place) for column in self.features], axis=1)

    def y(self, table: pa.Table) -> np.ndarray:
        """Targets (rows, targets) in float64, or the class index of each row (rows,)."""
        if self.task == "classification":
            return self.targets[0].codes(table[self.targets[0].name])
        return np.concatenate([column.numbers(table[column.name]) for column in self.targets], axis=1)

    def to_json(self) -> dict[str, Any]:
        """The encoding as plain lists and strings."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, plain: Any) -> "Encoding":
        """Inverse of `to_json`; InputError if `plain` is something else."""
        try:
            features, targets = (tuple(_column(column) for column in plain[side]) for side in ("features", "targets"))
            if (task := plain["task"]) not in get_args(Task):
                raise ValueError(f"the task {str(task)[:40]!r}")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("the columns of a fit", f"something else ({error})", "Fit again.") from error
        return cls(features, targets, task)


def _column(plain: dict[str, Any]) -> Column:
    name, levels, date = plain["name"], plain["levels"], plain["date"]
    if not (isinstance(name, str) and isinstance(levels, list) and all(isinstance(level, str) for level in levels)):
        raise ValueError("a column without a name")
    if not isinstance(date, bool):
        raise ValueError(f"date as {str(date)[:40]}")
    return Column(name, tuple(levels), date)


def _looks_like_classes(values: pa.ChunkedArray) -> bool:
    """Whether values are text, yes/no, or integers that are 0, 1, ... for at most 20 classes or take two values."""
    if not is_number(values.type):
        return True
    if not pa.types.is_integer(values.type):
        return False
    unique = np.unique(values.to_numpy())
    return len(unique) == 2 or (len(unique) <= _MOST_CODES and np.array_equal(unique, np.arange(len(unique))))
