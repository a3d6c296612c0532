"""Run a peer package in its own Python process, one case at a time, so that both sides can be timed in turn."""

import json
import subprocess
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def peer(python, script, made):
    """The versions of a peer script of this folder, and a function that times one case; `made` is a file of arrays."""
    command = [python, "-W", "ignore", str(Path(__file__).parent / script), str(made)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(case):
            process.stdin.write(case + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield json.loads(process.stdout.readline()), ask
