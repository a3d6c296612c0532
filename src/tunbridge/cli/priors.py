"""`tunbridge priors`."""

from pathlib import Path
from typing import Annotated

import typer

from tunbridge.cli import options


def priors(
    out: Annotated[Path | None, typer.Option(help="plot a gallery of priors to this file (.png, .svg or .pdf)")] = None,
    overwrite: options.OverwriteFile = False,
) -> None:
    """List the priors over weights; with --out, plot densities, pull towards zero and functions of examples."""
    from tunbridge.cli.listing import first_words
    from tunbridge.core.names import PRIORS
    from tunbridge.core.tables import to_text

    if out is not None:
        options.check_parent(out)
        options.check_file(out, overwrite)
    rows = [{"prior": name, "what it is": first_words(place)} for name, place in PRIORS.places.items()]
    print(to_text(rows).rstrip())
    if out is not None:
        from tunbridge.bench.beliefs.gallery import save

        save(out)
        print(f"Gallery: {out}")
