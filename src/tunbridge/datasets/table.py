"""Reading and writing tables in CSV and Parquet files; a broken file is refused with an InputError."""

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tunbridge.core.errors import InputError
from tunbridge.core.files import replacing
from tunbridge.core.tables import harmless
from tunbridge.datasets.cells import Conventions, as_array, convert, odd_cell
from tunbridge.datasets.dialect import SEPARATORS, Dialect, lines, refuse_ragged

_SUFFIXES = (*SEPARATORS, ".parquet")
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A table and the file that it was read from.

    Parameters
    ----------
    table
        The columns.
    path
        The file.
    dialect
        The encoding and separator of a text file; None for Parquet.
    conventions
        How ambiguous cells were read.
    notes
        Sentences on how the file was read.
    """

    table: pa.Table
    path: Path
    dialect: Dialect | None = None
    conventions: Conventions = Conventions()
    notes: tuple[str, ...] = ()

    def places(self, rows: Sequence[int] | np.ndarray) -> str:
        """Name the places of rows, counted from 0, in the file: "lines 2, 3", or "rows 1, 2" for Parquet."""
        plain = [int(row) for row in rows]
        line_numbers = None if self.dialect is None else lines(self.path, self.dialect, plain)
        word, numbers = ("row", [row + 1 for row in plain]) if line_numbers is None else ("line", line_numbers)
        return f"{word}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"

    def refuse_missing(self, names: Sequence[str]) -> None:
        """Raise InputError if these columns have missing values, which says where they are and what to do."""
        gaps = [(name, rows) for name in names if len(rows := missing(self.table[name]))]
        if gaps:
            descriptions = [
                f"{name!r} ({self.places(rows[:_SHOWN])}{', ...' if len(rows) > _SHOWN else ''}; {len(rows)} in all)"
                for name, rows in gaps[:_SHOWN]
            ]
            raise InputError(
                "a value in every cell",
                f"none in {'; '.join(descriptions)}{'; ...' if len(gaps) > _SHOWN else ''}",
                "Leave such rows out with --drop-missing, or such columns with --ignore, or fill them in first.",
            )

    def refuse_odd(self, wanted: Mapping[str, str | None]) -> None:
        """Raise InputError for the first cell that is not a number, or not a date, in text columns that should be.

        `wanted` maps each column to "a number" or "a date"; None takes what nearly all of its cells are.
        """
        for name, kind in wanted.items():
            column = self.table[name]
            odd = odd_cell(column, kind) if pa.types.is_string(column.type) else None
            if odd is not None:
                row, expected, cell = odd
                others = "as in training" if kind else "as its other cells are"
                way = "or leave its row out" if kind else f"or add --categorical {name!r} or --ignore {name!r}"
                raise InputError(
                    f"{expected} in every cell of {name!r}, {others}",
                    f"{cell[:40]!r} in {self.places([row])} of {self.path.name}",
                    f"Correct this cell, {way}.",
                )


def read(path: str | os.PathLike, text: Sequence[str] = (), like: Conventions = Conventions()) -> Sheet:
    """Read the table in a .csv, .tsv or .parquet file.

    Parameters
    ----------
    path
        The file. The encoding and separator of text are detected; numbers may have decimal commas, dates may have the
        day or the month first.
    text
        Columns that are kept as text.
    like
        How ambiguous cells are read, from an earlier file.
    """
    path = Path(path)
    check_readable(path)
    suffix = path.suffix.lower()
    dialect = None
    try:
        if suffix == ".parquet":
            return Sheet(_tidy(_checked(_read_parquet(path), path)), path)
        dialect = Dialect.of(path)
        return _read_text(path, dialect, text, like)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if dialect is not None:
            refuse_ragged(path, dialect)
        sentence = " ".join(str(error).split())[:200]
        raise InputError(f"a readable {suffix[1:]} file", f"{path}: {sentence}", "Correct the file.") from error


def _read_text(path: Path, dialect: Dialect, text: Sequence[str], like: Conventions) -> Sheet:
    def arrow(letters: Sequence[str], only: Sequence[str] = (), point: str = ".") -> pa.Table:
        return pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(encoding=dialect.encoding),
            parse_options=pyarrow.csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                strings_can_be_null=True,
                column_types=dict.fromkeys(letters, pa.string()),
                include_columns=list(only),
                decimal_point=point,
            ),
        )

    def read_again(names: list[str], comma: bool) -> pa.Table:
        return arrow((), names, ",") if comma else arrow(names, names)

    converted = convert(_checked(arrow(text), path), text, like, dialect.separator, read_again)
    return Sheet(_tidy(converted.table), path, dialect, converted.conventions, (*dialect.notes, *converted.notes))


def _read_parquet(path: Path) -> pa.Table:
    from pyarrow import parquet

    return _plain(parquet.read_table(path))


def _plain(table: pa.Table) -> pa.Table:
    """The table with dictionary-encoded columns decoded, and large strings and string views as plain strings."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(field.type.value_type))
        elif pa.types.is_string_view(field.type) or pa.types.is_large_string(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.string()))
    return table


def _checked(table: pa.Table, path: Path) -> pa.Table:
    if table.num_rows == 0 or table.num_columns == 0:
        raise InputError("a table with rows under a line of column names", f"none in {path}", "Check the file.")
    twice = [name for name, count in Counter(table.column_names).items() if count > 1]
    if twice:
        raise InputError("columns of different names", f"{listed(twice)} more than once", "Rename them.")
    blank = [i for i, name in enumerate(table.column_names) if not name.strip()]
    if blank:
        raise InputError("a name for every column", f"none for column {blank[0] + 1}", "Name it, or take it out.")
    return table


def _tidy(table: pa.Table) -> pa.Table:
    """The table with spaces stripped from both ends of column names, if the names stay distinct."""
    stripped = [name.strip() for name in table.column_names]
    return table.rename_columns(stripped) if len(set(stripped)) == len(stripped) else table


def write(table: pa.Table, path: str | os.PathLike | None) -> str | None:
    """Write the table atomically to a .csv, .tsv or .parquet file; if `path` is None, return it as CSV text.

    In text files, labels that a spreadsheet would take for a formula get a leading apostrophe.
    """
    if path is None:
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(_harmless(table), sink)
        return sink.getvalue().to_pybytes().decode()
    path = Path(path)
    suffix = path.suffix.lower()
    check_writable(path)
    with replacing(path) as file:
        if suffix == ".parquet":
            from pyarrow import parquet

            parquet.write_table(table, file)
        else:
            pyarrow.csv.write_csv(_harmless(table), file, pyarrow.csv.WriteOptions(delimiter=SEPARATORS[suffix]))
    return None


def _harmless(table: pa.Table) -> pa.Table:
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            cells = [harmless(cell) for cell in table.column(i).to_pylist()]
            table = table.set_column(i, field, pa.array(cells, field.type))
    return table.rename_columns([harmless(name) for name in table.column_names])


def check_readable(path: str | os.PathLike) -> None:
    """Raise InputError unless the path is an existing file with the suffix of a table."""
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError("a file that ends in .csv, .tsv or .parquet", str(path), "Rename or convert it.")
    if not path.is_file():
        raise InputError("a file with the data", f"{path}, where there is none", "Check the path.")


def check_writable(path: str | os.PathLike) -> None:
    """Raise InputError unless the path has the suffix of a table and its folder exists."""
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError("an output that ends in .csv, .tsv or .parquet", str(path), "Change its name.")
    if not path.parent.is_dir():
        raise InputError("a folder to write into", f"{path.parent}, which does not exist", "Create it first.")


def require(table: pa.Table, names: list[str], path: str | os.PathLike) -> None:
    """Raise InputError if the table lacks any of these columns."""
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise InputError(f"the column {listed(missing)} in {path}", f"{listed(table.column_names)}", "Check the names.")


def missing(column: pa.ChunkedArray) -> np.ndarray:
    """Return the indices of the rows where a column has no value, or one that is not finite."""
    gaps = pc.is_null(column, nan_is_null=True)
    if pa.types.is_floating(column.type):
        gaps = pc.or_kleene(gaps, pc.invert(pc.is_finite(column)))
    return np.flatnonzero(as_array(gaps))


def drop_missing(table: pa.Table, names: list[str]) -> tuple[pa.Table, np.ndarray]:
    """Return the rows that have a value in all these columns, and their indices in the table."""
    bad = np.unique(np.concatenate([missing(table[name]) for name in names] or [np.zeros(0, int)]))
    kept = np.setdiff1d(np.arange(table.num_rows), bad)
    if not len(kept):
        raise InputError("a row without missing values", "none", "Leave the emptiest columns out with --ignore.")
    return table.take(kept), kept


def listed(names: list[str]) -> str:
    """Return the first five names, quoted, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
