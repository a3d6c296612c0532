"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, Literal

import typer

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
        from tunbridge.core.errors import InputError

        raise InputError("--seconds above 0", f"{seconds}", "Leave it out for no limit.")
