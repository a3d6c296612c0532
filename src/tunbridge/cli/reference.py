"""`tunbridge reference`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tunbridge.cli import options

Action = Literal["list", "show", "make"]


def reference(
    action: Annotated[Action, typer.Argument(help="list references, show one, or make one")],
    name: Annotated[str, typer.Argument(help="reference to show, or recipe or table to make one from")] = "",
    target: Annotated[
        list[str], typer.Option("--target", "-t", help="column to predict (with a table); repeat for several")
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option("--out", "-o", help="write the reference to this .npz file")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="look for references here (default: $TUNBRIDGE_REFERENCES)")
    ] = None,
    hidden: Annotated[str, typer.Option(help="units per hidden layer (with a table)")] = "10",
    chains: Annotated[int, typer.Option(help="chains in each of the two runs (with a table)")] = 4,
    warmup: Annotated[int, typer.Option(help="warm-up steps per chain (with a table)")] = 1000,
    draws: Annotated[int, typer.Option(help="draws per chain (with a table)")] = 1500,
    task: options.TaskOption = None,
    ignore: options.Ignore = [],  # noqa: B006
    categorical: options.Categorical = [],  # noqa: B006
    drop_missing: options.DropMissing = False,
    test_share: options.TestShare = 0.2,
    seed: options.Seed = 0,
    checkpoint: Annotated[
        Path | None, typer.Option(help="save to this folder, and resume from it after an interruption")
    ] = None,
    overwrite: options.OverwriteFile = False,
    quiet: options.Quiet = False,
) -> None:
    """List, show or make reference posteriors: long chains that methods are judged by.

    A reference is made from two runs of NUTS and written only if they agree; otherwise the failed checks are shown.
    """
    from tunbridge.core.errors import InputError

    if action != "make":
        _show(name if action == "show" else None, folder)
        return
    if out is None or out.suffix != ".npz":
        raise InputError("--out as a .npz file", f"{out}", "Write --out NAME.npz.")
    options.check_file(out, overwrite)
    if target:
        from tunbridge.datasets.table import check_readable

        check_readable(name)

    from tunbridge.bench.truth.recipes import RECIPES, of_table

    if target:
        import jax

        from tunbridge.cli.study import Rows
        from tunbridge.runtime.durations import Run

        run = Run(chains=chains, warmup=warmup, draws=draws)
        rows = Rows.read(
            Path(name),
            target,
            task=task,
            ignore=ignore,
            categorical=categorical,
            drop_missing=drop_missing,
            test_share=test_share,
            hidden=hidden,
            seed=seed,
        )
        inputs, _ = rows.part(rows.test)
        if not quiet:
            print("\n".join(rows.said()))
        recipe = of_table(*rows.part(rows.train), inputs, rows.model, run=run, key=jax.random.key(seed))
    elif name in RECIPES:
        recipe = RECIPES[name]()
    else:
        raise InputError(
            f"one of {', '.join(RECIPES)}, or a file and --target", repr(name), "Choose one, or add --target."
        )
    made = recipe.make(out.stem, checkpoint=checkpoint, progress=not quiet)
    made.save(out)
    print(str(made).rstrip())
    print(f"Reference: {out}")


def _show(name: str | None, folder: Path | None) -> None:
    """Print one reference with its checks, or a table of all references."""
    from tunbridge.core.errors import InputError

    if name is not None and name.endswith(".npz") and not Path(name).is_file():
        raise InputError("a file with a reference", f"{name}, which does not exist", "Check the path.")

    from tunbridge.bench.truth.reference import load_reference, references
    from tunbridge.core.tables import to_text

    if name is not None:
        print(str(load_reference(name, folder)).rstrip())
        return
    loaded = {each: load_reference(file) for each, file in references(folder).items()}
    print(to_text([{"name": each, **ref.row} for each, ref in loaded.items()]).rstrip())
