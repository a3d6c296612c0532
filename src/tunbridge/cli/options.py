"""Options shared by several commands."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from tunbridge.core.errors import InputError

Task = Literal["regression", "classification"]
DataFile = Annotated[Path, typer.Argument(help="a .csv, .tsv or .parquet file with a header")]
Target = Annotated[list[str], typer.Option("--target", "-t", help="column to predict; repeat for several")]
TaskOption = Annotated[
    Task | None,
    typer.Option(help="default: classification if the target is text, two values or codes 0, 1, ..."),
]
LikelihoodOption = Annotated[
    str | None,
    typer.Option(
        "--likelihood",
        help="distribution of the target around the prediction: gaussian, heteroscedastic, studentt, laplace, poisson, "
        "negativebinomial or ordinal, or any other that needs no arguments",
    ),
]
PriorOption = Annotated[
    str | None,
    typer.Option(
        "--prior",
        help="prior over the weights: normal, laplace, studentt, horseshoe, ard or exchangeable, of unknown scale, or "
        "any other of `tunbridge priors` that needs no arguments (default: normal; exchangeable for shallow networks)",
    ),
]
Ignore = Annotated[list[str], typer.Option(help="column to ignore; repeat for several")]
Categorical = Annotated[
    list[str], typer.Option(help="column of numeric codes to treat as categories; repeat for several")
]
DropMissing = Annotated[bool, typer.Option("--drop-missing", help="ignore rows with missing values")]
TestShare = Annotated[float, typer.Option(help="share of rows held out for testing")]
Hidden = Annotated[
    str | None,
    typer.Option(help="units per hidden layer (default: 50; 50,50 above 5,000 rows; 10 in shallow networks)"),
]
Seed = Annotated[int, typer.Option(help="seed of the random numbers")]
Seconds = Annotated[
    float | None, typer.Option(help="limit on the training time of a fit in seconds, compilation excluded")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace the results in the folder")]
OverwriteFile = Annotated[bool, typer.Option("--overwrite", help="replace the file")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print only results and errors")]


def check_seconds(seconds: float | None) -> None:
    """Raise InputError unless the time limit is positive; None is no limit."""
    if seconds is not None and not seconds > 0:
        raise InputError("--seconds above 0", f"{seconds}", "Leave it out for no limit.")


def check_parent(out: Path) -> None:
    """Raise InputError unless the folder of the file `out` exists."""
    if not out.resolve().parent.is_dir():
        raise InputError("a file in a folder that exists", f"{out}", "Make the folder first.")


def check_file(out: Path, overwrite: bool) -> None:
    """Raise InputError if `out` is a folder, or a file that may not be replaced."""
    if out.is_dir():
        raise InputError("a file as --out", f"the folder {out}", "Name another.")
    if out.exists() and not overwrite:
        raise InputError("an --out that does not exist yet", f"{out}", "Name another, or add --overwrite.")


def check_folder(out: Path, results: Iterable[str], replaced: bool, way_out: str) -> None:
    """Raise InputError if `out` is not a folder, or holds any of these results and they may not be replaced."""
    if out.exists() and not out.is_dir():
        raise InputError("a folder as --out", f"the file {out}", "Name another.")
    existing = [name for name in results if (out / name).exists()]
    if existing and not replaced:
        raise InputError("an --out without results in it", f"{out / existing[0]}", f"Name another, or {way_out}.")
