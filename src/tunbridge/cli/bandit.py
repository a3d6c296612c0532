"""`tunbridge bandit`."""

from pathlib import Path
from typing import Annotated

import typer

from tunbridge.cli import options


def bandit(
    context: typer.Context,
    data: options.DataFile,
    target: Annotated[str, typer.Option("--target", "-t", help="column with the classes")],
    policies: Annotated[
        str, typer.Option("--policies", "-p", help="of thompson, ucb, greedy and epsilon, separated by commas")
    ] = "thompson,greedy",
    method: Annotated[
        str, typer.Option("--method", "-m", help="method that learns the rewards; see `tunbridge methods`")
    ] = "neurallinear",
    payoffs: Annotated[
        Path | None,
        typer.Option(
            help="table with a row per class (its first column names them) and a column per action: what the action "
            "brings in that class (default: an action per class, 1 if right and 0 if not)"
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="number of steps (default: one per row of the table)")] = None,
    runs: Annotated[int, typer.Option(help="runs of each policy, with different seeds")] = 5,
    out: Annotated[Path, typer.Option("--out", "-o", help="write the report to this folder")] = Path("bandit"),
    ignore: options.Ignore = [],  # noqa: B006
    categorical: options.Categorical = [],  # noqa: B006
    drop_missing: options.DropMissing = False,
    hidden: options.Hidden = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Play a table of classes as a bandit: try one action per row, see only its reward; report the regret."""
    from tunbridge.cli.rundir import opened
    from tunbridge.core.names import METHODS
    from tunbridge.runtime import programs

    folder = opened(out, context, data, overwrite, None)
    METHODS.place(method)
    programs.settle_order()

    from tunbridge.cli.playing import Arena, Bar
    from tunbridge.core.tables import to_text

    arena = Arena.read(
        data,
        target,
        payoffs,
        ignore=ignore,
        categorical=categorical,
        drop_missing=drop_missing,
    )
    agents = arena.agents(policies, METHODS[method](), hidden)
    plan = arena.plan(agents, steps, runs, seed)
    if not quiet:
        print(arena.said())
    with folder.writing(overwrite), Bar(plan, not quiet) as bar:
        results = arena.play(plan, folder.checkpoint, bar.advance)
        folder.finish(results.report(f"{target} of {data.name} as a bandit", method))
    print(to_text(results.rows).rstrip())
    print(results.verdict)
    print(f"Report: {folder.report}")
