"""`tunbridge compare`."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tunbridge.cli import options

_COMPARE_ONLY = ("methods", "out", "no_baselines", "overwrite", "quiet")
"""Options that `tunbridge fit` does not have, or that concern only what this call writes."""


def compare(
    context: typer.Context,
    data: options.DataFile,
    target: options.Target,
    methods: Annotated[
        str, typer.Option("--methods", "-m", help="methods, separated by commas (default: a few fast methods)")
    ] = "",
    out: Annotated[Path, typer.Option("--out", "-o", help="write the report to this folder")] = Path("comparison"),
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
    no_baselines: Annotated[bool, typer.Option("--no-baselines", help="leave out the baselines")] = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit several methods to the same training rows, score them on the same test rows, and write a report."""
    from tunbridge.cli.rundir import opened
    from tunbridge.runtime import programs

    folder = opened(out, context, data, overwrite, seconds)
    programs.settle_order()

    from tunbridge.bench.comparing.compare import named
    from tunbridge.cli.study import Rows
    from tunbridge.core.tables import to_text
    from tunbridge.model.defaults import DENSE

    chosen = named([name.strip() for name in methods.split(",") if name.strip()] or None)
    rows = Rows.read(
        data,
        target,
        task=task,
        parts=next((each.parts for each in chosen.values() if each.parts is not DENSE), DENSE),
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
            chosen,
            baselines=not no_baselines,
            seed=seed,
            seconds=seconds,
            checkpoint=folder.checkpoint,
            progress=not quiet,
        )
        best = comparison.recommendation.method
        command = "" if best is None else fit_command(context, best)
        folder.finish(rows.report(f"{', '.join(target)} by {len(comparison.rows)} methods", comparison, seed, command))
    print(to_text(comparison.rows).rstrip())
    print(to_text(comparison.costs).rstrip())
    print(rows.summary(comparison))
    if command:
        print(f"To fit it: {command}")
    print(f"Report: {folder.report}")


def fit_command(context: typer.Context, method: str) -> str:
    """Return the `tunbridge fit` command for one method, with the options given to this call."""
    words = ["tunbridge", "fit", str(context.params["data"])]
    for option in context.command.params:
        source = context.get_parameter_source(option.name)
        if option.name in (*_COMPARE_ONLY, "data") or source is None or source.name != "COMMANDLINE":
            continue
        value, name = context.params[option.name], max(option.opts, key=len)
        if isinstance(value, bool):
            words += [name]
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            words += [name, str(item)]
    return shlex.join([*words, "--method", method])
