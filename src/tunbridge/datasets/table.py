"""Tables as people keep them: CSV and Parquet files, read whole and refused with a sentence where they are broken."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tunbridge.core.errors import InputError

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_SHOWN = 5


def read(path: str | os.PathLike, text: Sequence[str] = ()) -> pa.Table:
    """The table in a .csv, .tsv or .parquet file; columns named in `text` are taken letter by letter."""
    path = Path(path)
    check_readable(path)
    suffix = path.suffix.lower()
    try:
        table = _read_parquet(path) if suffix == ".parquet" else _read_csv(path, _DELIMITERS[suffix], text)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        sentence = " ".join(str(error).split())[:200]
        raise InputError(f"a readable {suffix[1:]} file", f"{path}: {sentence}", "Mend the file.") from error
    return _checked(table, path)


def _read_csv(path: Path, delimiter: str, text: Sequence[str]) -> pa.Table:
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    kinds = {name: pa.string() for name in text}
    convert = pyarrow.csv.ConvertOptions(strings_can_be_null=True, column_types=kinds)
    return pyarrow.csv.read_csv(path, parse_options=parse, convert_options=convert)


def _read_parquet(path: Path) -> pa.Table:
    from pyarrow import parquet

    return _plain(parquet.read_table(path))


def _plain(table: pa.Table) -> pa.Table:
    """Columns as their values: not as codes into a dictionary, nor as views."""
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
    return table.rename_columns([name.strip() for name in table.column_names]) if _padded(table) else table


def _padded(table: pa.Table) -> bool:
    """Whether names carry spaces at their ends that may go: they stay different without."""
    stripped = [name.strip() for name in table.column_names]
    return stripped != table.column_names and len(set(stripped)) == len(stripped)


def write(table: pa.Table, path: str | os.PathLike | None) -> str | None:
    """The table as a .csv, .tsv or .parquet file, whole or not at all; None gives the text of a CSV back."""
    if path is None:
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(table, sink)
        return sink.getvalue().to_pybytes().decode()
    path = Path(path)
    suffix = path.suffix.lower()
    check_writable(path)
    temporary = path.with_name(path.name + ".tmp")
    try:
        if suffix == ".parquet":
            from pyarrow import parquet

            parquet.write_table(table, temporary)
        else:
            options = pyarrow.csv.WriteOptions(delimiter=_DELIMITERS[suffix])
            pyarrow.csv.write_csv(table, temporary, options)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return None


def check_readable(path: str | os.PathLike) -> None:
    """InputError unless there is a file that may hold a table."""
    path = Path(path)
    if path.suffix.lower() not in (*_DELIMITERS, ".parquet"):
        raise InputError("a file that ends in .csv, .tsv or .parquet", str(path), "Rename or convert it.")
    if not path.is_file():
        raise InputError("a file with the data", f"{path}, where there is none", "Check the path.")


def check_writable(path: str | os.PathLike) -> None:
    """InputError unless a table can be written there."""
    path = Path(path)
    if path.suffix.lower() not in (*_DELIMITERS, ".parquet"):
        raise InputError("an output that ends in .csv, .tsv or .parquet", str(path), "Change its name.")
    if not path.parent.is_dir():
        raise InputError("a folder to write into", f"{path.parent}, which is not there", "Make it first.")


def require(table: pa.Table, names: list[str], path: str | os.PathLike) -> None:
    """InputError that names the columns which are not there."""
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise InputError(f"the column {listed(missing)} in {path}", f"{listed(table.column_names)}", "Check the names.")


def refuse_missing(table: pa.Table, names: list[str]) -> None:
    """InputError that names the columns and rows (the first row is 1) with missing values, and the way out."""
    places = []
    for name in names:
        rows = missing(table[name])
        if len(rows):
            more = ", ..." if len(rows) > _SHOWN else ""
            places.append(
                f"{name!r} (rows {', '.join(str(row + 1) for row in rows[:_SHOWN])}{more}; {len(rows)} in all)"
            )
    if places:
        where = "; ".join(places[:_SHOWN]) + ("; ..." if len(places) > _SHOWN else "")
        raise InputError(
            "a value in every cell",
            f"none in {where}",
            "Leave such rows out with --drop-missing, or such columns with --ignore, or fill them in first.",
        )


def missing(column: pa.ChunkedArray) -> np.ndarray:
    """The numbers of the rows where a column has no value, or one that is not finite."""
    gaps = pc.is_null(column, nan_is_null=True)
    if pa.types.is_floating(column.type):
        gaps = pc.or_(gaps, pc.invert(pc.is_finite(pc.fill_null(column, 0.0))))
    return np.flatnonzero(gaps.to_numpy(zero_copy_only=False))


def drop_missing(table: pa.Table, names: list[str]) -> tuple[pa.Table, np.ndarray]:
    """The rows that have a value in all these columns, and their numbers in the table."""
    bad = np.unique(np.concatenate([missing(table[name]) for name in names] or [np.zeros(0, int)]))
    kept = np.setdiff1d(np.arange(table.num_rows), bad)
    if not len(kept):
        raise InputError("a row without missing values", "none", "Leave the emptiest columns out with --ignore.")
    return table.take(kept), kept


def listed(names: list[str]) -> str:
    """Some of the names, quoted."""
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
