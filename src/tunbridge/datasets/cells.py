"""Text columns whose cells are numbers with commas, or dates: how they are converted, and which cell is invalid."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tunbridge.core.errors import InputError

_SIGN, _POWER = r"^[+-]?", r"([eE][+-]?\d+)?$"
_DECIMAL = rf"{_SIGN}((\d+|\d{{1,3}}(\.\d{{3}})+)(,\d+)?|,\d+){_POWER}"
"""Numbers with a decimal comma: 1,5 and 1.234,5 and 1.234.567."""
_POINT = rf"{_SIGN}((\d+|\d{{1,3}}(,\d{{3}})+)(\.\d*)?|\.\d+){_POWER}"
"""Numbers with a decimal point: 1.5 and 1,234 and 1,234.5."""
_DOTTED = rf"{_SIGN}(0|[1-9]\d{{0,2}}(\.\d{{3}})*)$"
"""Numbers in which a point may separate thousands: 1.234."""
_TIME = r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?)?$"
_DATES = (
    r"^(?P<one>\d{1,2})(?P<mark>[./-])(?P<two>\d{1,2})(?P<again>[./-])(?P<year>\d{4})" + _TIME,
    r"^(?P<year>\d{4})(?P<mark>[./])(?P<two>\d{1,2})(?P<again>[./])(?P<one>\d{1,2})" + _TIME,
)
"""Dates: day and month, or month and day, before the year; or year, month, day."""
Columns = dict[str, pa.ChunkedArray]
Again = Callable[[list[str], bool], pa.Table]
"""A function that reads columns of a file again: as text, or as numbers with decimal commas."""
_GLANCE = 100
"""Number of cells that are checked before the whole column is."""
_MOST = 0.9
"""If at least this share of cells is of one kind, the others are taken for mistakes."""


@dataclasses.dataclass(frozen=True)
class Conventions:
    """How ambiguous cells of a file are read; None where nothing settled it.

    Parameters
    ----------
    decimal_comma
        Whether 1,234 means 1.234 (rather than 1234).
    day_first
        Whether 01/02/2020 is in February.
    """

    decimal_comma: bool | None = None
    day_first: bool | None = None

    def to_json(self) -> dict[str, bool | None]:
        """The fields as a dictionary of plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, plain: Any) -> "Conventions":
        """Inverse of `to_json`; InputError if `plain` is something else."""
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(plain, dict) or set(plain) != names or not all(map(_is_choice, plain.values())):
            raise InputError("the conventions of a fit", "something else", "Fit again.")
        return cls(**plain)


def _is_choice(value: Any) -> bool:
    return value is None or isinstance(value, bool)


@dataclasses.dataclass(frozen=True)
class Converted:
    """A table with text converted to numbers and dates where possible, the conventions used, and notes for the user."""

    table: pa.Table
    conventions: Conventions
    notes: list[str]


def convert(
    table: pa.Table,
    letters: Sequence[str],
    like: Conventions,
    separator: str,
    again: Again,
) -> Converted:
    """Convert text to numbers (with commas) and dates, in all columns but `letters`.

    Ambiguous cells are settled by other cells of their column, then by other columns, then by `like`. Where none of
    these settles it, a comma is a decimal comma unless it is also the separator, and the day of a date comes first.

    Parameters
    ----------
    table, letters
        The table as read with decimal points, and the columns to be left as text.
    like
        The conventions of an earlier file.
    separator
        The separator of cells.
    again
        Reads columns again: as text, or as numbers with decimal commas.
    """
    texts = {
        name: pc.utf8_trim_whitespace(table[name])
        for name in table.column_names
        if name not in letters and pa.types.is_string(table.schema.field(name).type)
    }
    floats = [f.name for f in table.schema if pa.types.is_floating(f.type) and f.name not in letters]
    parsed = _parsed(texts, again)
    fits = {
        name: (name in parsed or _all_match(text, _DECIMAL), _all_match(text, _POINT)) for name, text in texts.items()
    }
    fits = {name: both for name, both in fits.items() if any(both)}
    comma = _comma(set(fits.values()), like, separator, lambda: again(floats, False) if floats else None)
    converted, sentences = _numbers({name: texts[name] for name in fits}, fits, comma, parsed)
    settled = any(decimal and not point for decimal, point in fits.values())
    if floats and (settled or (like.decimal_comma and separator != ",")):
        dotted, notes = _dotted(again(floats, False))
        converted, sentences = {**converted, **dotted}, sentences + notes
    dates, day_first, notes = _dates({name: column for name, column in texts.items() if name not in converted}, like)
    for name, column in {**converted, **dates}.items():
        table = table.set_column(table.column_names.index(name), name, column)
    decimal = comma.meant if fits or comma.known else None
    return Converted(table, Conventions(decimal, day_first), sentences + notes)


def _parsed(texts: Columns, again: Again) -> Columns:
    """Columns that Arrow parses as numbers with decimal commas, which is much faster than checking every cell."""
    names = [name for name, column in texts.items() if _all_match(column.slice(0, _GLANCE), _DECIMAL)]
    table = again(names, True) if names else {}
    return {name: table[name] for name in names if pa.types.is_floating(table[name].type)}


@dataclasses.dataclass(frozen=True)
class _Comma:
    """Whether the comma of an ambiguous cell is a decimal comma, and whether that is known or a default."""

    meant: bool
    known: bool


def _comma(
    fits: set[tuple[bool, bool]], like: Conventions, separator: str, again: Callable[[], pa.Table | None]
) -> _Comma:
    """Decide from the columns that fit decimal commas, points or both, then from `like`, then from numeric columns."""
    unambiguous = fits - {(True, True)}
    if unambiguous:
        return _Comma((True, False) in unambiguous, True)
    if like.decimal_comma is not None:
        return _Comma(like.decimal_comma, True)
    numbers = again() if fits else None
    if numbers is not None and not all(_all_match(numbers[name], _DOTTED) for name in numbers.column_names):
        return _Comma(False, True)
    return _Comma(separator != ",", False)


def _numbers(
    texts: Columns, fits: dict[str, tuple[bool, bool]], comma: _Comma, parsed: Columns
) -> tuple[Columns, list[str]]:
    """Text columns converted to numbers, and notes on ambiguous ones."""
    columns, notes = {}, []
    for name, column in texts.items():
        decimal, point = fits[name]
        by_comma = comma.meant if decimal and point else decimal
        if by_comma and name in parsed:
            columns[name] = parsed[name]
        else:
            columns[name] = _cast(column, drop="." if by_comma else ",", point="," if by_comma else ".")
        if decimal and point and not comma.known and (cell := _first_with(column, ",")):
            meant = cell.replace(",", "." if by_comma else "")
            notes.append(f"Numbers of {name!r} may mean two things: {cell} is read as {meant}.")
    return columns, notes


def _dotted(table: pa.Table) -> tuple[Columns, list[str]]:
    """Columns in which points separate thousands, in a file with decimal commas; and notes on them."""
    columns, notes = {}, []
    for name in table.column_names:
        column = pc.utf8_trim_whitespace(table[name])
        if _all_match(column, _DOTTED) and (cell := _first_with(column, ".")):
            columns[name] = _cast(column, drop=".", point=",")
            meant = cell.replace(".", "")
            notes.append(
                f"Commas are decimal in this file, so points in {name!r} separate thousands: {cell} is {meant}."
            )
    return columns, notes


def _dates(texts: Columns, like: Conventions) -> tuple[Columns, bool | None, list[str]]:
    """Text columns converted to dates, whether the day comes first (None without dates), and notes."""
    dates_by_name = {name: dates for name, column in texts.items() if (dates := Dates.of(column)) is not None}
    orders = {name: dates.day_first for name, dates in dates_by_name.items()}
    known = {order for order in orders.values() if order is not None}
    day_first = None if not known else True in known
    default = next((choice for choice in (day_first, like.day_first) if choice is not None), True)
    columns, notes = {}, []
    for name, dates in dates_by_name.items():
        order = default if orders[name] is None else bool(orders[name])
        values, wrong = dates.values(order)
        if wrong.any():
            continue
        columns[name] = values
        if orders[name] is None and day_first is None and like.day_first is None:
            which = "day" if order else "month"
            notes.append(f"Dates of {name!r} may mean two things: {dates.cell} is read with the {which} first.")
    return columns, default if dates_by_name else None, notes


@dataclasses.dataclass(frozen=True)
class Dates:
    """A column of dates split into parts: day and month in unknown order, year, time; and an example cell."""

    one: np.ndarray
    two: np.ndarray
    year: np.ndarray
    seconds: np.ndarray
    there: np.ndarray
    """Which cells have a value."""
    settled: bool
    """Whether the format settles the order of day and month: points as separators, or the year first."""
    cell: str

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "Dates | None":
        """Split a text column into parts; None unless all cells are written as dates."""
        for pattern in _DATES:
            if _all_match(column, pattern):
                parts = pc.extract_regex(column.combine_chunks(), pattern=pattern)
                same = pc.equal(parts.field("mark"), parts.field("again"))
                if not pc.all(same, min_count=0).as_py():
                    return None
                names = ("one", "two", "year", "hour", "minute", "second")
                one, two, year, hour, minute, second = (_integers(parts.field(name)) for name in names)
                settled = pattern is _DATES[1] or pc.all(pc.equal(parts.field("mark"), ".")).as_py()
                seconds = 3600 * hour + 60 * minute + second
                there = as_array(column.is_valid())
                cell = column.drop_null()[0].as_py()
                return cls(one, two, year, seconds, there, settled, cell)
        return None

    @property
    def day_first(self) -> bool | None:
        """Whether the day comes before the month; None where the cells do not settle it."""
        if self.settled or self.one[self.there].max() > 12:
            return True
        return False if self.two[self.there].max() > 12 else None

    def values(self, day_first: bool) -> tuple[pa.Array, np.ndarray]:
        """The timestamps for an order of day and month, and a mask of the cells that are not valid dates."""
        day, month = (self.one, self.two) if day_first else (self.two, self.one)
        months = ((self.year - 1970) * 12 + np.clip(month, 1, 12) - 1).astype("datetime64[M]")
        first, end = months.astype("datetime64[D]"), (months + np.timedelta64(1, "M")).astype("datetime64[D]")
        length = (end - first).astype(int)
        wrong = self.there & ((month < 1) | (month > 12) | (day < 1) | (day > length) | (self.seconds >= 86400))
        days = first + (day - 1).astype("timedelta64[D]")
        times = days.astype("datetime64[s]") + self.seconds.astype("timedelta64[s]")
        return pa.array(times, mask=~self.there), wrong


def as_array(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """A NumPy array of numbers or truth values; PyArrow's `to_numpy` would import pandas, which takes 0.2 s."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if whole.null_count:
        return whole.to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(whole.type):
        return np.from_dlpack(whole.cast(pa.uint8())).astype(bool)
    return np.from_dlpack(whole)


def odd_cell(column: pa.ChunkedArray, wanted: str | None = None) -> tuple[int, str, str] | None:
    """Return (row, kind, text) of the first cell that is not of the kind of the others in a text column, or None.

    `wanted` is the kind, "a number" or "a date"; None takes the one that nearly all cells are, if any.
    """
    texts = pc.utf8_trim_whitespace(column)
    num_values = len(column) - column.null_count
    for kind, strange in (("a number", _no_numbers(texts)), ("a date", _no_dates(texts))):
        rows = np.flatnonzero(as_array(pc.fill_null(strange, False)))
        if len(rows) and (kind == wanted or (wanted is None and len(rows) <= (1 - _MOST) * num_values)):
            row = int(rows[0])
            return row, kind, column[row].as_py()
    return None


def _no_numbers(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Mask of the cells that are not numbers, by the decimal mark that fits more of them."""
    both = (pc.invert(pc.match_substring_regex(texts, pattern)) for pattern in (_POINT, _DECIMAL))
    return min(both, key=lambda strange: pc.sum(strange, min_count=0).as_py())


def _no_dates(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Mask of the cells that are not dates, by the order of day and month that fits more of them."""
    written = pc.or_(*(pc.match_substring_regex(texts, pattern) for pattern in _DATES))
    dates = Dates.of(pc.if_else(written, texts, pa.scalar(None, pa.string())))
    if dates is None:
        return pc.invert(written)
    wrong = min((dates.values(order)[1] for order in (True, False)), key=np.sum)
    return pc.or_(pc.invert(written), pa.chunked_array([wrong]))


def _all_match(column: pa.ChunkedArray, pattern: str) -> bool:
    """Whether a column has values and all of them match the pattern."""
    for part in (column.slice(0, _GLANCE), column):
        if part.null_count == len(part) and len(part) == len(column):
            return False
        if not pc.all(pc.match_substring_regex(part, pattern), min_count=0).as_py():
            return False
    return True


def _cast(column: pa.ChunkedArray, drop: str, point: str) -> pa.ChunkedArray:
    """Cast text to numbers, to integers if all of them are whole."""
    plain = pc.replace_substring(pc.replace_substring(column, drop, ""), point, ".")
    whole = pc.all(pc.match_substring_regex(plain, r"^[+-]?\d{1,18}$"), min_count=0).as_py()
    plain = pc.replace_substring_regex(plain, r"^\+", "")
    return plain.cast(pa.int64() if whole else pa.float64())


def _first_with(column: pa.ChunkedArray, mark: str) -> str:
    """The first cell that contains `mark`, or ""."""
    row = pc.index(pc.match_substring(column, mark), True).as_py()
    return "" if row < 0 else column[row].as_py()


def _integers(texts: pa.Array) -> np.ndarray:
    """Texts of digits as integers, 0 where there are none."""
    digits = pc.if_else(pc.equal(texts, ""), "0", texts)
    return as_array(pc.fill_null(digits.cast(pa.int64()), 0))
