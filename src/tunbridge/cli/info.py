"""`tunbridge info`."""

from pathlib import Path
from typing import Annotated

import typer


def info(run: Annotated[Path, typer.Argument(help="folder written by `tunbridge fit`")]) -> None:
    """Describe the fit in a folder: how its table was read, the model and method, scores, warnings and versions."""
    from tunbridge.cli.rundir import RunDir

    facts = RunDir(run).facts()

    from tunbridge.core.provenance import describe
    from tunbridge.core.tables import to_text
    from tunbridge.inference.store import load

    posterior = load(run)
    print("\n".join(map(str, facts.get("read", []))))
    for part in ("network", "prior", "likelihood"):
        print(f"{part.capitalize()}: {describe(getattr(posterior.model, part))}")
    if posterior.provenance is not None:
        print(f"Method: {posterior.provenance.method}")
        print(f"Versions: {', '.join(posterior.provenance.versions)}, on {posterior.provenance.device}")
    if posterior.cut is not None:
        print(f"Cut: {posterior.cut}.")
    for note in posterior.notes:
        print(f"Note: {note}")
    print(to_text(facts.get("scores", [])).rstrip())
