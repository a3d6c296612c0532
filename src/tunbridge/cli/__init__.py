"""The command line, one file per command: it parses options, calls the library and prints the results."""

import atexit
import gc
import os
import sys
from typing import Annotated

import typer

from tunbridge.cli import interrupts
from tunbridge.cli.bandit import bandit
from tunbridge.cli.bench import bench
from tunbridge.cli.compare import compare
from tunbridge.cli.data import data
from tunbridge.cli.demo import demo
from tunbridge.cli.fit import fit
from tunbridge.cli.info import info
from tunbridge.cli.methods import methods
from tunbridge.cli.predict import predict
from tunbridge.cli.priors import priors
from tunbridge.cli.reference import reference
from tunbridge.runtime import programs

app = typer.Typer(
    name="tunbridge",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (fit, predict, compare, bench, bandit, methods, priors, info, data, demo, reference):
    app.command()(command)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(", ".join(f"{name} {version(name)}" for name in ("tunbridge", "jax")))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the versions and exit")
    ] = False,
) -> None:
    """Bayesian deep learning you can check: fit, predict and compare on tables, with honest error bars."""
    programs.keep_in_processes()


def main() -> None:
    """Run the command line; exit with code 2 after a usage error, 130 after an interrupt, 1 after any other failure.

    Every error is printed as one sentence. Compiled programs are cached on disk for the next call; see
    `tunbridge.runtime.programs`.
    """
    gc.set_threshold(100_000, 50, 100)  # objects made by imports are never freed: scanning them repeatedly costs 0.3 s
    atexit.register(gc.freeze)  # nor need they be scanned when the process ends, which costs 0.4 s
    try:
        with interrupts.heard(), interrupts.kept():
            app()
    except SystemExit as end:
        if end.code == 130:  # typer's exit code for an interrupt
            cause = getattr(end.__context__, "__cause__", None)
            print(f"\nInterrupted. {cause if isinstance(cause, KeyboardInterrupt) else ''}".rstrip(), file=sys.stderr)
        raise
    except Exception as error:  # users see a traceback only if they ask for it
        if os.environ.get("TUNBRIDGE_DEBUG"):
            raise
        sys.exit(_print_error(error))


def _print_error(error: Exception) -> int:
    from tunbridge.core.errors import InputError, TunbridgeError

    sentence = str(error)
    if isinstance(error, MemoryError):
        sentence = "There is not enough memory for this. Use fewer rows or columns, or a smaller network."
    elif not isinstance(error, TunbridgeError | OSError):
        sentence = f"This should not happen ({type(error).__name__}: {sentence}). TUNBRIDGE_DEBUG=1 shows where."
    print(f"Error: {' '.join(sentence.split())}", file=sys.stderr)
    return 2 if isinstance(error, InputError) else 1
