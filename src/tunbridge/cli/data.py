"""`tunbridge data`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tunbridge.cli import options

Bundled = Literal["diabetes", "breast_cancer", "wine", "digits"]


def data(
    name: Annotated[Bundled, typer.Argument(help="dataset to write")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="write to this .csv, .tsv or .parquet file (default: NAME.csv)")
    ] = None,
    overwrite: options.OverwriteFile = False,
) -> None:
    """Write a real dataset to a file, to try the other commands on."""
    from tunbridge.datasets import table as tables
    from tunbridge.datasets.bundled import as_table

    path = Path(f"{name}.csv") if out is None else out
    tables.check_writable(path)
    options.check_file(path, overwrite)
    table = as_table(name)
    tables.write(table, path)
    print(f"{table.num_rows} rows in {path}; the target is {table.column_names[-1]!r}.")
