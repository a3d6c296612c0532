"""How tests call the command line, and a table for it."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pyarrow as pa
import pytest

from tunbridge.cli import main
from tunbridge.datasets import table as tables

_HEARS = """
import runpy, signal
import tunbridge
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
print("ready", flush=True)
runpy.run_module("tunbridge", run_name="__main__", alter_sys=True)
"""


def started(*arguments):
    """A process of the command line that hears interrupts, ready to be interrupted."""
    words = [sys.executable, "-c", _HEARS, *map(str, arguments)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def call(*arguments):
    """(exit code, standard output, standard error) of a call in this process."""
    said, error = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(error):
        patch.setattr(sys, "argv", ["tunbridge", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return code, said.getvalue(), error.getvalue()


def penguins(path, num=60, missing=False):
    """A made-up table with numbers, categories, a class and two numbers to predict."""
    rng = np.random.default_rng(0)
    bill, island = rng.normal(40, 5, num), rng.choice(["Biscoe", "Dream", "Torgersen"], num)
    mass = 80 * bill + 300 * (island == "Dream") + rng.normal(0, 100, num)
    columns = {
        "bill <script>alert('x')</script>": bill,
        "island": island,
        "ringed": rng.integers(0, 2, num).astype(bool),
        "mass $g$": mass,
        "depth": 0.1 * bill + rng.normal(0, 1, num),
        "species": np.where(mass > np.median(mass), "Gentoo & co", "Adélie"),
    }
    if missing:
        columns["island"] = [None if i in (3, 17) else value for i, value in enumerate(island)]
    tables.write(pa.table(columns), path)
    return path
