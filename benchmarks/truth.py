"""Distance of every method, with its defaults, to reference posteriors, and its cost.

    python benchmarks/truth.py [NAME ...] [--methods NAME ...] [--again]
    -> benchmarks/results/truth.json, one row at a time; existing rows are not measured again

NAME is a reference that comes with the package. Stochastic-gradient samplers use minibatches of 32 rows (10 of the
curve's 30); everything else is as in `METHODS`. Each method is fitted with several keys, one after the other: seconds
are CPU seconds of all threads, for the fits after the first, which compiles. A fit is stopped after ten minutes and
marked as such; a fit that fails is recorded with its error.
"""

import argparse

import jax
import numpy as np
from judged import Problem, judge, reference_row
from record import put, recorded

import tunbridge as tb
from tunbridge.bench.truth.recipes import RECIPES

KEYS = (11, 12)
LIMIT = 600
"""Time limit per fit in seconds."""


def methods(batch):
    """One instance of each method in METHODS."""
    made = {name: cls() for name, cls in tb.METHODS.items()}
    for name in ("sgld", "sghmc", "sgnht"):
        made[name] = tb.METHODS[name](run=tb.Run(4, 10_000, 500, 50, batch))
    return made


def row(method, problem):
    """Means and standard deviations over keys, or the error."""
    found = []
    for key in KEYS:
        try:
            found.append(judge(method, problem, jax.random.key(key), max_seconds=LIMIT))
        except tb.TunbridgeError as error:
            return {"error": f"{type(error).__name__}: {error}"}
    whole = {part: found[0][part] for part in ("between_halves", "example_gradients", "notes") if part in found[0]}
    whole["seconds"] = float(np.mean([one["seconds"] for one in found[1:]]))
    for part in found[0]:
        if part not in (*whole, "temperature"):
            values = [one[part] for one in found]
            whole[part] = {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1))}
    return {"keys": len(found), **whole}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(RECIPES), help="references")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    for section in options.names:
        problem = Problem(section)
        put("truth", section, "reference", reference_row(problem))
        for name, method in methods(problem.batch).items():
            chosen = not options.methods or name in options.methods
            if chosen and (options.again or name not in recorded("truth").get(section, {})):
                found = row(method, problem)
                put("truth", section, name, found)
                jax.clear_caches()  # the programs of a hundred fits exceed the memory maps allowed per process
                print(section, name, {part: value for part, value in found.items() if part != "notes"}, flush=True)
