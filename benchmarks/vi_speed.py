"""Times of variational inference and of torch packages on the same data, in one run on one thread.

    [TUNBRIDGE_DATA=FOLDER] python benchmarks/vi_speed.py --peer PYTHON [--rounds 5] [--methods NAME ...]
    -> benchmarks/results/vi_speed.json

PYTHON is an interpreter with the packages of benchmarks/peers_vi.py, which waits while the other side runs: every round
times each method of both sides once, in turn. Images are MNIST's first 10,000 where FOLDER has mnist.npz, else noise.
Our time per step is the difference of two fits of different length, so that compilation and other fixed costs cancel;
the first fit, which compiles, is recorded separately. Methods that are not in the registry are left out. A ratio is
their time divided by ours, the median over rounds; above 1 ours is faster.
"""

import argparse
import itertools
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from asking import peer
from record import record

import tunbridge as tb

NOISE = 0.3
CLASSIFIER = tb.Model(tb.networks.MLP((256,), "relu"), tb.priors.Normal(1.0), tb.likelihoods.Categorical(10))
REGRESSION = tb.Model(tb.networks.MLP((50,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(NOISE))


class Setting(NamedTuple):
    """A network, its minibatch size, the steps of a short and a long fit, and the peer methods for each of ours."""

    size: str
    model: tb.Model
    batch: int
    lengths: tuple[int, int]
    against: dict[str, tuple[str, ...]]


SETTINGS = {
    "784-256-10": Setting(
        "large",
        CLASSIFIER,
        128,
        (79, 5 * 79),
        {
            "map": ("torch, Adam",),
            "bayesbybackprop": ("bayesian-torch, Reparameterization",),
            "meanfield": ("bayesian-torch, Reparameterization", "bayesian-torch, Flipout"),
            "ivon": ("ivon-opt",),
            "vbll": ("vbll, diagonal", "vbll, dense"),
        },
    ),
    "13-50-1": Setting(
        "small",
        REGRESSION,
        32,
        (2_000, 22_000),
        {"map": (), "bayesbybackprop": ("posteriors.vi.diag",), "meanfield": ("posteriors.vi.diag",)},
    ),
}


def arrays():
    """Images and classes, a table and a target; and a description of the images."""
    rng = np.random.default_rng(1)
    file = Path(os.environ.get("TUNBRIDGE_DATA", ".")) / "mnist.npz"
    if file.exists():
        read = np.load(file)
        images, classes = read["x_train"][:10_000].reshape(10_000, -1) / 255, read["y_train"][:10_000]
    else:
        images, classes = rng.normal(size=(10_000, 784)), rng.integers(0, 10, size=10_000)
    table = rng.normal(size=(500, 13))
    target = np.sin(table[:, :1]) + NOISE * rng.normal(size=(500, 1))
    found = {"large_x": images, "small_x": table, "small_y": target}
    found = {name: value.astype(np.float32) for name, value in found.items()}
    return {**found, "large_y": classes.astype(np.int64)}, "MNIST" if file.exists() else "noise"


def fit_seconds(name, setting, data, steps):
    """Seconds of a whole fit."""
    method = tb.METHODS[name](train=tb.Train(steps, setting.batch))
    began = time.perf_counter()
    posterior = method.fit(setting.model, data, key=jax.random.key(0), progress=False)
    jax.block_until_ready(jax.tree.leaves(posterior))
    return time.perf_counter() - began


def step_seconds(name, setting, data):
    """Seconds per step, from two fits of different length."""
    short, long = setting.lengths
    took = [fit_seconds(name, setting, data, steps) for steps in (short, long)]
    return (took[1] - took[0]) / (long - short)


def race(setting, data, names, ask, rounds):
    """Seconds per step by name, one value per round, for our methods and the peers; and our first fits."""
    cases = list(dict.fromkeys(case for against in setting.against.values() for case in against))
    first = {name: fit_seconds(name, setting, data, setting.lengths[0]) for name in names}
    for name in names:
        fit_seconds(name, setting, data, setting.lengths[1])
    for case in cases:
        ask(case)
    ours, theirs = {name: [] for name in names}, {case: [] for case in cases}
    for _ in range(rounds):
        for name, case in itertools.zip_longest(names, cases):
            if case:
                theirs[case].append(ask(case)["seconds a step"])
            if name:
                ours[name].append(step_seconds(name, setting, data))
    return ours, theirs, first


def summary(steps, setting, rows):
    """Medians over rounds, and the rounds."""
    epoch = math.ceil(rows / setting.batch)
    return {
        name: {
            "seconds an epoch": epoch * float(np.median(took)),
            "steps a second": 1 / float(np.median(took)),
            "seconds a step by round": took,
        }
        for name, took in steps.items()
    }


def compare(setting, held, chosen, ask, rounds):
    """Results for one network: both sides and their ratios."""
    data = tb.Data(held[f"{setting.size}_x"], held[f"{setting.size}_y"])
    names = [name for name in setting.against if name in chosen and name in tb.METHODS]
    ours, theirs, first = race(setting, data, names, ask, rounds)
    rows = len(held[f"{setting.size}_x"])
    found = summary(ours, setting, rows)
    for name in names:
        found[name]["first fit, seconds"] = first[name]
    ratios = {
        f"{name}, against {case}": float(np.median(np.divide(theirs[case], ours[name])))
        for name in names
        for case in setting.against[name]
    }
    return {"tunbridge": found, "torch": summary(theirs, setting, rows), "ratios": ratios}


if __name__ == "__main__":
    every = list(dict.fromkeys(name for setting in SETTINGS.values() for name in setting.against))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=every, default=every)
    options = parser.parse_args()
    if "intra_op" not in os.environ.get("XLA_FLAGS", ""):
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        one = {**os.environ, "XLA_FLAGS": flags, "OMP_NUM_THREADS": "1"}
        sys.exit(subprocess.run(["taskset", "-c", "0", sys.executable, *sys.argv], env=one, check=False).returncode)
    load = os.getloadavg()[0]
    held, images = arrays()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "arrays.npz"
        np.savez(made, **held)
        with peer(options.peer, "peers_vi.py", made) as (versions, ask):
            found = {
                name: compare(setting, held, options.methods, ask, options.rounds) for name, setting in SETTINGS.items()
            }
    facts = {"threads": 1, "rounds": options.rounds, "images": images, "load before": load, "torch versions": versions}
    record("vi_speed", {**facts, **found})
