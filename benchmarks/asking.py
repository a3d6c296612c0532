"""A peer in a Python of its own, which answers one case at a time so that rounds can take turns."""

import json
import subprocess
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def peer(python, script, made):
    """The versions of a script of this folder, and a function that has a case timed; `made` holds the arrays."""
    command = [python, "-W", "ignore", str(Path(__file__).parent / script), str(made)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(case):
            process.stdin.write(case + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield json.loads(process.stdout.readline()), ask
