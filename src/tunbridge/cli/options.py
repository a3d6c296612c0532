"""Options that several commands have."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from tunbridge.core.errors import InputError

Task = Literal["regression", "classification"]
DataFile = Annotated[Path, typer.Argument(help="A .csv, .tsv or .parquet file with a line of column names.")]
Target = Annotated[list[str], typer.Option("--target", "-t", help="The column to predict; give it again for several.")]
TaskOption = Annotated[
    Task | None,
    typer.Option(help="What the target is. Unless given, text, two values and codes 0, 1, ... are classes."),
]
Family = Literal["gaussian", "heteroscedastic", "studentt", "laplace", "poisson", "negativebinomial", "ordinal"]
LikelihoodOption = Annotated[
    Family | None,
    typer.Option(
        "--likelihood",
        help="How targets vary around what is predicted: numbers, counts, or classes numbered in their order.",
    ),
]
Weights = Literal["normal", "laplace", "studentt", "horseshoe", "ard"]
PriorOption = Annotated[
    Weights,
    typer.Option("--prior", help="What is believed of the weights, each with a scale that is unknown."),
]
Ignore = Annotated[list[str], typer.Option(help="A column to leave out; give it again for several.")]
Categorical = Annotated[list[str], typer.Option(help="A column of codes to read as categories, not as numbers.")]
DropMissing = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")]
TestShare = Annotated[float, typer.Option(help="The share of rows held out to judge by.")]
Hidden = Annotated[str | None, typer.Option(help="Units of each hidden layer; 50,50 unless given.")]
Seed = Annotated[int, typer.Option(help="Decides everything random: the same seed gives the same result.")]
Seconds = Annotated[
    float | None, typer.Option(help="The most seconds that a method may train, compilation not counted.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in the folder.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but results and errors.")]


def check_seconds(seconds: float | None) -> None:
    """InputError unless there is time."""
    if seconds is not None and not seconds > 0:
        raise InputError("--seconds above 0", f"{seconds}", "Leave it out for no limit.")


def check_parent(out: Path) -> None:
    """InputError unless a file can be written there."""
    if not out.resolve().parent.is_dir():
        raise InputError("a file in a folder that exists", f"{out}", "Make the folder first.")


def check_folder(out: Path, results: Iterable[str], replaced: bool, way_out: str) -> None:
    """InputError unless `out` can be a folder, and holds none of these results or may lose them."""
    if out.exists() and not out.is_dir():
        raise InputError("a folder as --out", f"the file {out}", "Name another.")
    there = [name for name in results if (out / name).exists()]
    if there and not replaced:
        raise InputError("an --out without results in it", f"{out / there[0]}", f"Name another, or {way_out}.")
