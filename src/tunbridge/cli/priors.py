"""`tunbridge priors`."""

from pathlib import Path
from typing import Annotated

import typer

from tunbridge.cli import options

PRIORS = {
    "Normal": "normal",
    "FullNormal": "correlated",
    "MatrixNormal": "matrix",
    "LowRankNormal": "correlated",
    "JointNormal": "correlated",
    "Laplace": "tails",
    "StudentT": "tails",
    "Cauchy": "tails",
    "Logistic": "tails",
    "TwoNormals": "mixtures",
    "SpikeAndSlab": "mixtures",
    "ScaleMixture": "shrinkage",
    "Horseshoe": "shrinkage",
    "GroupHorseshoe": "shrinkage",
    "ARD": "relevance",
    "Hierarchical": "hierarchical",
    "FilterGroups": "filters",
    "Gates": "gates",
    "LogUniform": "improper",
    "LogDensity": "density",
    "ByPath": "paths",
}
"""The priors over weights, each with its file."""


def priors(
    out: Annotated[Path | None, typer.Option(help="Draw a gallery into this file (.png, .svg or .pdf).")] = None,
) -> None:
    """List the priors over weights and what each is; with --out, draw their densities, pulls and functions."""
    from tunbridge.cli.listing import first_words
    from tunbridge.core.tables import to_text

    if out is not None:
        options.check_parent(out)
    places = {name: f"tunbridge.model.priors.{file}:{name}" for name, file in PRIORS.items()}
    print(to_text([{"prior": name, "what it is": first_words(place)} for name, place in places.items()]).rstrip())
    if out is not None:
        from tunbridge.bench.gallery import save

        save(out)
        print(f"Gallery: {out}")
