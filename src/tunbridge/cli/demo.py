"""`tunbridge demo`."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tunbridge.cli import options

_TABLE, _TARGET, _SHARE = "wine", "flavanoids", 0.3
_ON_TABLE = ("ensemble", "ridge", "boosting")
_ON_CURVE = ("ensemble", "laplace", "sghmc")


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="write the table and the report to this folder")] = Path(
        "demo"
    ),
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Demonstrate the package: a real table, and a curve with a gap beside its reference posterior; one report."""
    from tunbridge.runtime import programs

    programs.settle_order()
    import jax

    from tunbridge.bench.comparing.compare import named
    from tunbridge.bench.comparing.report.sections import gap_section
    from tunbridge.bench.truth.gap import fit_gap
    from tunbridge.cli.rundir import RunDir
    from tunbridge.cli.study import Rows
    from tunbridge.core.tables import to_text
    from tunbridge.datasets import table as tables
    from tunbridge.datasets.bundled import as_table

    folder, data = RunDir(out, context), out / f"{_TABLE}.csv"
    folder.check(overwrite, [data.name])
    with folder.writing(overwrite, [data.name]):
        tables.write(as_table(_TABLE), data)
        rows = Rows.read(data, [_TARGET], test_share=_SHARE, seed=seed)
        if not quiet:
            print(f"1. {_TARGET.capitalize()} of {rows.table.num_rows} wines from their other measurements.")
        comparison = rows.judge(named(_ON_TABLE), seed=seed, checkpoint=folder.checkpoint, progress=not quiet)
        print(to_text(comparison.rows).rstrip())
        if not quiet:
            print("2. A curve with a gap in its data, whose posterior is known from long chains of NUTS.")
        gap = fit_gap(named(_ON_CURVE), key=jax.random.key(seed), progress=not quiet)
        print(to_text(gap.rows).rstrip())
        method = comparison.recommendation.method
        words = ["tunbridge", "fit", str(data), "--target", _TARGET, "--test-share", str(_SHARE), "--seed", str(seed)]
        command = shlex.join([*words, "--method", method]) if method else ""
        folder.finish(rows.report(f"{_TARGET} of wines", comparison, seed, command, gap_section(gap)))
    print(rows.summary(comparison, *gap.sentences))
    print(f"To fit it: {command}" if command else "No method is recommended.")
    print(f"Report: {folder.report.resolve()}")
