"""`tunbridge predict`."""

from pathlib import Path
from typing import Annotated

import typer

from tunbridge.cli import options


def predict(
    run: Annotated[Path, typer.Argument(help="A folder that `tunbridge fit` wrote.")],
    data: options.DataFile,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A .csv, .tsv or .parquet file; standard output unless given.")
    ] = None,
    mass: Annotated[float, typer.Option(help="What the intervals are to hold.")] = 0.9,
    drop_missing: options.DropMissing = False,
) -> None:
    """Predict the rows of a table: mean, spread and interval, or the probability of each class."""
    from tunbridge.cli.rundir import RunDir
    from tunbridge.core.errors import InputError
    from tunbridge.datasets import table as tables
    from tunbridge.datasets.encoding import Encoding
    from tunbridge.runtime import programs

    if not 0.0 < mass < 1.0:
        raise InputError("a --mass between 0 and 1", f"{mass}", "Write 0.9 for 90 %.")
    if out is not None:
        tables.check_writable(out)
    encoding = Encoding.from_json(RunDir(run).facts().get("encoding"))
    table = tables.read(data, encoding.text)
    tables.require(table, encoding.columns, data)
    numbers = None
    if drop_missing:
        table, kept = tables.drop_missing(table, encoding.columns)
        numbers = kept + 1
    tables.refuse_missing(table, encoding.columns)
    x = encoding.x(table)
    programs.settle_order()

    from tunbridge.cli.answers import answers
    from tunbridge.inference.store import load

    found = answers(load(run).predict(x), encoding, mass, numbers)
    text = tables.write(found, out)
    print(text.rstrip() if text is not None else f"{found.num_rows} rows in {out}")
