"""`tunbridge fit`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tunbridge.cli import options


def fit(
    context: typer.Context,
    data: options.DataFile,
    target: options.Target,
    method: Annotated[str, typer.Option("--method", "-m", help="method to fit; see `tunbridge methods`")] = "auto",
    out: Annotated[Path, typer.Option("--out", "-o", help="write the posterior and its report to this folder")] = Path(
        "run"
    ),
    task: options.TaskOption = None,
    likelihood: options.LikelihoodOption = None,
    prior: options.PriorOption = None,
    ignore: options.Ignore = [],  # noqa: B006
    categorical: options.Categorical = [],  # noqa: B006
    drop_missing: options.DropMissing = False,
    test_share: options.TestShare = 0.2,
    hidden: options.Hidden = None,
    seed: options.Seed = 0,
    seconds: options.Seconds = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a Bayesian neural network to a table; write its posterior and a report."""
    from tunbridge.cli.rundir import opened
    from tunbridge.core.names import METHODS
    from tunbridge.runtime import programs

    folder = opened(out, context, data, overwrite, seconds)
    METHODS.place(method)
    programs.settle_order()

    from tunbridge.cli.study import Rows, plain
    from tunbridge.core.tables import to_text

    chosen = METHODS[method]()
    rows = Rows.read(
        data,
        target,
        task=task,
        parts=chosen.parts,
        likelihood=likelihood,
        prior=prior,
        ignore=ignore,
        categorical=categorical,
        drop_missing=drop_missing,
        test_share=test_share,
        hidden=hidden,
        seed=seed,
    )
    if not quiet:
        print("\n".join(rows.said()))
    with folder.writing(overwrite):
        comparison = rows.judge(
            {method: chosen}, seed=seed, checkpoint=folder.checkpoint, progress=not quiet, seconds=seconds
        )
        facts: dict[str, Any] = {"encoding": rows.encoding.to_json(), "conventions": rows.conventions.to_json()}
        facts |= {"scores": plain(comparison.rows), "read": rows.said(), "seed": seed}
        page = rows.report(f"{', '.join(target)} by {method}", comparison, seed)
        folder.finish(page, comparison.posteriors[method], facts)
    print(to_text(comparison.rows).rstrip())
    print(rows.summary(comparison, *comparison.posteriors[method].notes))
    print(f"Posterior: {out}  Report: {folder.report}")
