"""`tunbridge predict`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tunbridge.cli import options


def predict(
    run: Annotated[Path, typer.Argument(help="folder written by `tunbridge fit`")],
    data: options.DataFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="write to this .csv, .tsv or .parquet file (default: standard output)"),
    ] = None,
    mass: Annotated[float, typer.Option(help="probability that the prediction intervals contain")] = 0.9,
    drop_missing: options.DropMissing = False,
    overwrite: options.OverwriteFile = False,
) -> None:
    """Predict the rows of a table: mean, standard deviation and interval, or the probability of each class."""
    import numpy as np

    from tunbridge.cli.rundir import RunDir
    from tunbridge.core.errors import InputError
    from tunbridge.datasets import table as tables
    from tunbridge.datasets.cells import Conventions
    from tunbridge.datasets.encoding import Encoding
    from tunbridge.runtime import programs

    if not 0.0 < mass < 1.0:
        raise InputError("a --mass between 0 and 1", f"{mass}", "Write 0.9 for 90 %.")
    if out is not None:
        tables.check_writable(out)
        options.check_file(out, overwrite)
    facts = RunDir(run).facts()
    encoding, conventions = Encoding.from_json(facts.get("encoding")), Conventions.from_json(facts.get("conventions"))
    sheet = tables.read(data, encoding.text, conventions)
    for note in sheet.notes:
        print(f"Note: {note}", file=sys.stderr)
    tables.require(sheet.table, encoding.columns, data)
    sheet.refuse_odd(encoding.kinds)
    table, kept = sheet.table, np.arange(sheet.table.num_rows)
    if drop_missing:
        table, kept = tables.drop_missing(table, encoding.columns)
    else:
        sheet.refuse_missing(encoding.columns)
    x = encoding.x(table, lambda row: sheet.places([kept[row]]))
    programs.settle_order()

    from tunbridge.cli.answers import answers
    from tunbridge.inference.store import load

    predictions = answers(load(run).predict(x), encoding, mass, kept + 1 if drop_missing else None)
    text = tables.write(predictions, out)
    print(text.rstrip() if text is not None else f"{predictions.num_rows} rows in {out}")
