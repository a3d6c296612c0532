"""`tunbridge priors`."""

from pathlib import Path
from typing import Annotated

import typer

from tunbridge.cli.listing import first_words


def priors(
    out: Annotated[Path | None, typer.Option(help="Draw a gallery into this file (.png, .svg or .pdf).")] = None,
) -> None:
    """List the priors over weights and what each is; with --out, draw their densities, pulls and functions."""
    import inspect

    from tunbridge import priors as zoo
    from tunbridge.core.tables import to_text

    rows = []
    for name in zoo.__all__:
        thing = getattr(zoo, name)
        if inspect.isclass(thing) and issubclass(thing, zoo.AbstractPrior) and not inspect.isabstract(thing):
            rows.append({"prior": name, "what it is": first_words(thing)})
    print(to_text(rows).rstrip())
    if out is not None:
        from tunbridge.bench.gallery import save

        save(out)
        print(f"Gallery: {out}")
