"""Columns of text whose cells are numbers with commas, or dates: what they mean, and which cell is neither."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SIGN, _POWER = r"^[+-]?", r"([eE][+-]?\d+)?$"
_DECIMAL = rf"{_SIGN}((\d+|\d{{1,3}}(\.\d{{3}})+)(,\d+)?|,\d+){_POWER}"
"""1,5 and 1.234,5 and 1.234.567."""
_POINT = rf"{_SIGN}((\d+|\d{{1,3}}(,\d{{3}})+)(\.\d*)?|\.\d+){_POWER}"
"""1.5 and 1,234 and 1,234.5."""
_DOTTED = rf"{_SIGN}(0|[1-9]\d{{0,2}}(\.\d{{3}})*)$"
"""1.234, where a point may stand between thousands."""
_TIME = r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?)?$"
_DATES = (
    r"^(?P<one>\d{1,2})(?P<mark>[./-])(?P<two>\d{1,2})(?P<again>[./-])(?P<year>\d{4})" + _TIME,
    r"^(?P<year>\d{4})(?P<mark>[./])(?P<two>\d{1,2})(?P<again>[./])(?P<one>\d{1,2})" + _TIME,
)
"""Day and month, or month and day, before the year; the year, the month and the day."""
Columns = dict[str, pa.ChunkedArray]
Again = Callable[[list[str], bool], pa.Table]
"""Reads columns of a file anew: as they are written, or with decimal commas."""
_GLANCE = 100
"""Cells that are looked at before a whole column is."""
_MOST = 0.9
"""The share of cells from which on the others are taken for mistakes."""


@dataclasses.dataclass(frozen=True)
class Conventions:
    """What a file was found to mean by cells that could mean two things; None where nothing told.

    Parameters
    ----------
    decimal_comma
        Whether 1,234 is a little more than one.
    day_first
        Whether 01/02/2020 is in February.
    """

    decimal_comma: bool | None = None
    day_first: bool | None = None

    def to_json(self) -> dict[str, bool | None]:
        """As plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, plain: Any) -> "Conventions":
        """The inverse of `to_json`; nothing told where it is something else, as in older runs."""
        given = plain if isinstance(plain, dict) else {}
        return cls(*(value if isinstance(value := given.get(f.name), bool) else None for f in dataclasses.fields(cls)))


@dataclasses.dataclass(frozen=True)
class Converted:
    """A table whose text is numbers and dates where it can be, by which conventions, and what a user should know."""

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
    """Numbers with commas and dates for text, in all columns but `letters`.

    A cell that could mean two things means what other cells of its column say, then other columns, then `like`. Where
    nothing tells, a comma is a decimal comma unless it is also the separator, and the day of a date comes first.

    Parameters
    ----------
    table, letters
        The table as read with decimal points, and columns to be left as they are.
    like
        The conventions of an earlier file.
    separator
        Between cells.
    again
        Reads columns anew: as they are written, or with decimal commas.
    """
    texts = {
        name: pc.utf8_trim_whitespace(table[name])
        for name in table.column_names
        if name not in letters and pa.types.is_string(table.schema.field(name).type)
    }
    floats = [f.name for f in table.schema if pa.types.is_floating(f.type) and f.name not in letters]
    parsed = _parsed(texts, again)
    fits = {name: (name in parsed or _all(text, _DECIMAL), _all(text, _POINT)) for name, text in texts.items()}
    fits = {name: both for name, both in fits.items() if any(both)}
    comma = _comma(set(fits.values()), like, separator, lambda: again(floats, False) if floats else None)
    found, said = _numbers({name: texts[name] for name in fits}, fits, comma, parsed)
    told = any(decimal and not point for decimal, point in fits.values())
    if floats and (told or (like.decimal_comma and separator != ",")):
        more, notes = _dotted(again(floats, False))
        found, said = {**found, **more}, said + notes
    dates, day_first, notes = _dates({name: column for name, column in texts.items() if name not in found}, like)
    for name, column in {**found, **dates}.items():
        table = table.set_column(table.column_names.index(name), name, column)
    decimal = comma.meant if fits or comma.known else None
    return Converted(table, Conventions(decimal, day_first), said + notes)


def _parsed(texts: Columns, again: Again) -> Columns:
    """Columns that Arrow takes for numbers with decimal commas: much faster than to look at every cell."""
    names = [name for name, column in texts.items() if _all(column.slice(0, _GLANCE), _DECIMAL)]
    table = again(names, True) if names else {}
    return {name: table[name] for name in names if pa.types.is_floating(table[name].type)}


@dataclasses.dataclass(frozen=True)
class _Comma:
    """Whether a comma is a decimal one where a cell leaves that open, and whether anything told."""

    meant: bool
    known: bool


def _comma(
    fits: set[tuple[bool, bool]], like: Conventions, separator: str, again: Callable[[], pa.Table | None]
) -> _Comma:
    """From the columns that fit decimal commas, decimal points or both, then from columns that were read as numbers."""
    told = fits - {(True, True)}
    if told:
        return _Comma((True, False) in told, True)
    if like.decimal_comma is not None:
        return _Comma(like.decimal_comma, True)
    numbers = again() if fits else None
    if numbers is not None and not all(_all(numbers[name], _DOTTED) for name in numbers.column_names):
        return _Comma(False, True)
    return _Comma(separator != ",", False)


def _numbers(
    texts: Columns, fits: dict[str, tuple[bool, bool]], comma: _Comma, parsed: Columns
) -> tuple[Columns, list[str]]:
    """Columns of numbers, and notes on those that could have been others."""
    found, notes = {}, []
    for name, column in texts.items():
        decimal, point = fits[name]
        by_comma = comma.meant if decimal and point else decimal
        if by_comma and name in parsed:
            found[name] = parsed[name]
        else:
            found[name] = _cast(column, drop="." if by_comma else ",", point="," if by_comma else ".")
        if decimal and point and not comma.known and (cell := _first(column, ",")):
            meant = cell.replace(",", "." if by_comma else "")
            notes.append(f"Numbers of {name!r} may mean two things: {cell} is read as {meant}.")
    return found, notes


def _dotted(table: pa.Table) -> tuple[Columns, list[str]]:
    """Columns in which a point stands between thousands: those of a file with decimal commas."""
    found, notes = {}, []
    for name in table.column_names:
        column = pc.utf8_trim_whitespace(table[name])
        if _all(column, _DOTTED) and (cell := _first(column, ".")):
            found[name] = _cast(column, drop=".", point=",")
            meant = cell.replace(".", "")
            notes.append(f"Commas are decimal in this file, so points of {name!r} part thousands: {cell} is {meant}.")
    return found, notes


def _dates(texts: Columns, like: Conventions) -> tuple[Columns, bool | None, list[str]]:
    """Columns of dates, whether the day comes first where that was told, and notes."""
    parts = {name: taken for name, column in texts.items() if (taken := Dates.of(column)) is not None}
    told = {name: taken.day_first for name, taken in parts.items()}
    known = {order for order in told.values() if order is not None}
    day_first = None if not known else True in known
    unsure = next((one for one in (day_first, like.day_first) if one is not None), True)
    found, notes = {}, []
    for name, taken in parts.items():
        order = unsure if told[name] is None else bool(told[name])
        values, wrong = taken.values(order)
        if wrong.any():
            continue
        found[name] = values
        if told[name] is None and day_first is None and like.day_first is None:
            which = "day" if order else "month"
            notes.append(f"Dates of {name!r} may mean two things: {taken.cell} is read with the {which} first.")
    return found, unsure if parts else None, notes


@dataclasses.dataclass(frozen=True)
class Dates:
    """The numbers of dates: two whose order is to be found, a year, a time; and a cell to show."""

    one: np.ndarray
    two: np.ndarray
    year: np.ndarray
    seconds: np.ndarray
    there: np.ndarray
    """Whether there is a value."""
    settled: bool
    """Whether the way of writing tells the order: points, or the year in front."""
    cell: str

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "Dates | None":
        """None unless all cells are written as dates."""
        for pattern in _DATES:
            if _all(column, pattern):
                parts = pc.extract_regex(column.combine_chunks(), pattern=pattern)
                same = pc.equal(parts.field("mark"), parts.field("again"))
                if not pc.all(same, min_count=0).as_py():
                    return None
                names = ("one", "two", "year", "hour", "minute", "second")
                one, two, year, hour, minute, second = (_whole(parts.field(name)) for name in names)
                settled = pattern is _DATES[1] or pc.all(pc.equal(parts.field("mark"), ".")).as_py()
                seconds = 3600 * hour + 60 * minute + second
                there = column.is_valid().to_numpy()
                cell = column.drop_null()[0].as_py()
                return cls(one, two, year, seconds, there, settled, cell)
        return None

    @property
    def day_first(self) -> bool | None:
        """Whether the first number is the day; None where nothing tells."""
        if self.settled or self.one[self.there].max() > 12:
            return True
        return False if self.two[self.there].max() > 12 else None

    def values(self, day_first: bool) -> tuple[pa.Array, np.ndarray]:
        """The times, and which of the cells are none."""
        day, month = (self.one, self.two) if day_first else (self.two, self.one)
        months = ((self.year - 1970) * 12 + np.clip(month, 1, 12) - 1).astype("datetime64[M]")
        first, end = months.astype("datetime64[D]"), (months + np.timedelta64(1, "M")).astype("datetime64[D]")
        length = (end - first).astype(int)
        wrong = self.there & ((month < 1) | (month > 12) | (day < 1) | (day > length) | (self.seconds >= 86400))
        days = first + (day - 1).astype("timedelta64[D]")
        times = days.astype("datetime64[s]") + self.seconds.astype("timedelta64[s]")
        return pa.array(times, mask=~self.there), wrong


def odd_cell(column: pa.ChunkedArray, wanted: str | None = None) -> tuple[int, str, str] | None:
    """(row, kind, text) of the first cell that is no number, or no date, in a column of text where the others are.

    `wanted` is "a number" or "a date"; None finds out which nearly all cells are, if any.
    """
    texts = pc.utf8_trim_whitespace(column)
    there = len(column) - column.null_count
    for kind, strange in (("a number", _no_numbers(texts)), ("a date", _no_dates(texts))):
        rows = np.flatnonzero(pc.fill_null(strange, False).to_numpy())
        if len(rows) and (kind == wanted or (wanted is None and len(rows) <= (1 - _MOST) * there)):
            row = int(rows[0])
            return row, kind, column[row].as_py()
    return None


def _no_numbers(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which cells are no numbers, by the decimal mark that fits more of them."""
    both = (pc.invert(pc.match_substring_regex(texts, pattern)) for pattern in (_POINT, _DECIMAL))
    return min(both, key=lambda strange: pc.sum(strange, min_count=0).as_py())


def _no_dates(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which cells are no dates, by the order of day and month that fits more of them."""
    written = pc.or_(*(pc.match_substring_regex(texts, pattern) for pattern in _DATES))
    taken = Dates.of(pc.if_else(written, texts, pa.scalar(None, pa.string())))
    if taken is None:
        return pc.invert(written)
    wrong = min((taken.values(order)[1] for order in (True, False)), key=np.sum)
    return pc.or_(pc.invert(written), pa.chunked_array([wrong]))


def _all(column: pa.ChunkedArray, pattern: str) -> bool:
    """Whether all cells match, of which there is at least one."""
    for part in (column.slice(0, _GLANCE), column):
        if part.null_count == len(part) and len(part) == len(column):
            return False
        if not pc.all(pc.match_substring_regex(part, pattern), min_count=0).as_py():
            return False
    return True


def _cast(column: pa.ChunkedArray, drop: str, point: str) -> pa.ChunkedArray:
    """Numbers, whole where all of them are."""
    plain = pc.replace_substring(pc.replace_substring(column, drop, ""), point, ".")
    whole = pc.all(pc.match_substring_regex(plain, r"^[+-]?\d{1,18}$"), min_count=0).as_py()
    plain = pc.replace_substring_regex(plain, r"^\+", "")
    return plain.cast(pa.int64() if whole else pa.float64())


def _first(column: pa.ChunkedArray, mark: str) -> str:
    """The first cell with a mark in it, or ""."""
    row = pc.index(pc.match_substring(column, mark), True).as_py()
    return "" if row < 0 else column[row].as_py()


def _whole(texts: pa.Array) -> np.ndarray:
    """Digits as numbers, 0 where there are none."""
    digits = pc.if_else(pc.equal(texts, ""), "0", texts)
    return pc.fill_null(digits.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
