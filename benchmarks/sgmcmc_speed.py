"""Speed of stochastic-gradient samplers against blackjax, posteriors (torch) and our optimiser, on one thread.

    [TUNBRIDGE_DATA=FOLDER] python benchmarks/sgmcmc_speed.py --peer PYTHON [--rounds 7] [--parts table images]
    -> benchmarks/results/sgmcmc_speed.json

Small: 13-50-1 tanh, 500 rows, minibatches of 32, known noise. Blackjax's kernels run in one jitted `fori_loop`, with
rows gathered by a precomputed table of indices; its `sghmc` takes 10 gradients of a minibatch per step, its default,
and is timed per gradient. PYTHON is an interpreter with the packages of benchmarks/peers_sgmcmc.py, which waits while
the others run. Images: 784-256-10 relu, minibatches of 128, MNIST's first 10,000 where FOLDER has mnist.npz, else
noise.

Every round times each case once, in turn, in CPU seconds, since other work may share the machine. The time of a step is
the difference of two runs of different length, so that compilation and other fixed costs cancel. A ratio is their time
divided by ours within a round, the median over rounds; above 1 ours is faster.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from asking import peer
from record import RESULTS, record

import tunbridge as tb

NOISE, PACE, ALPHA = 0.3, 1e-5, 0.1
REGRESSION = tb.Model(tb.networks.MLP((50,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(NOISE))
CLASSIFIER = tb.Model(tb.networks.MLP((256,), "relu"), tb.priors.Normal(1.0), tb.likelihoods.Categorical(10))
SMALL, LARGE = (1_000, 11_000), (150, 250)
"""Steps of a short and of a long run."""
INNER = 10
"""Gradients per step of blackjax's sghmc."""
RMS = tb.preconditioners.RMSprop
OURS = {
    "sgld": tb.SGLD(PACE),
    "sghmc": tb.SGHMC(PACE, friction=ALPHA),
    "sgnht": tb.SGNHT(PACE, friction=ALPHA),
    "sghmc, BAOAB": tb.SGHMC(PACE, friction=ALPHA, integrator=tb.splittings.BAOAB()),
    "sgnht, BADODAB": tb.SGNHT(PACE, friction=ALPHA, integrator=tb.splittings.BADODAB()),
    "sghmc, RMSprop": tb.SGHMC(1e-3, friction=ALPHA, preconditioner=RMS()),
    "sghmc, RMSprop forever": tb.SGHMC(1e-3, friction=ALPHA, preconditioner=RMS(forever=True)),
    "sghmc, Fisher": tb.SGHMC(1e-3, friction=ALPHA, preconditioner=tb.preconditioners.Fisher()),
    "sghmc, step size measured": tb.SGHMC(friction=ALPHA),
    "sghmc, cyclical": tb.SGHMC(PACE, friction=ALPHA, schedule=tb.schedules.Cyclical()),
    "sghmc, noise measured": tb.SGHMC(PACE, friction=ALPHA, noise_estimate=None),
    "sghmc, ControlVariate": tb.SGHMC(PACE, friction=ALPHA, gradient=tb.subsampling.ControlVariate()),
}
IMAGES = {
    "map": tb.MAP(),
    "sgld": tb.SGLD(1e-8),
    "sghmc": tb.SGHMC(1e-8),
    "sghmc, RMSprop": tb.SGHMC(1e-6, preconditioner=RMS()),
    "sghmc, step size measured": tb.SGHMC(),
}


def arrays():
    """A table and a target; images and classes; and a description of the images."""
    rng = np.random.default_rng(1)
    file = Path(os.environ.get("TUNBRIDGE_DATA", ".")) / "mnist.npz"
    if file.exists():
        read = np.load(file)
        images, classes = read["x_train"][:10_000].reshape(10_000, -1) / 255, read["y_train"][:10_000].astype(int)
    else:
        images, classes = rng.normal(size=(10_000, 784)), rng.integers(0, 10, size=10_000)
    x = rng.normal(size=(500, 13)).astype(np.float32)
    y = np.sin(x[:, :1]) + NOISE * rng.normal(size=(500, 1)).astype(np.float32)
    return (x, y), (images.astype(np.float32), classes), "MNIST" if file.exists() else "noise"


def ours(method, model, data, batch, steps):
    """CPU seconds of a whole fit with the given number of steps."""
    if isinstance(method, tb.MAP):
        method = tb.MAP(train=tb.Train(steps, batch))
    else:
        warmup = 100 if method.step_size is None else 0
        kept = 20 if model is REGRESSION else 1
        run = tb.Run(1, warmup, kept, (steps - warmup) // kept, batch)
        method = type(method)(**{**vars(method), "run": run})
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.ConvergenceWarning)
        posterior = method.fit(model, data, key=jax.random.key(0), progress=False)
    jax.block_until_ready(jax.tree.leaves(posterior))
    return time.process_time() - began


def grad_estimator(num):
    """Log density of the small problem as blackjax documents it: the log likelihood of one row, and the log prior."""

    def row(params, point):
        x, y = point
        (w1, b1), (w2, b2) = params
        off = (y - jnp.tanh(x @ w1 + b1) @ w2 - b2) / NOISE
        return -0.5 * jnp.sum(off**2)

    def prior(params):
        return sum(-0.5 * jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))

    return blackjax.sgmcmc.gradients.grad_estimator(prior, row, num)


@partial(jax.jit, static_argnums=0)
def bare(name, x, y, table, key, steps):
    """The given number of gradients in one loop."""
    estimator = grad_estimator(len(x))
    sampler = blackjax.sgld(estimator) if name == "sgld" else blackjax.sghmc(estimator, INNER, alpha=ALPHA)
    pace = PACE if name == "sgld" else PACE**0.5
    keys = jax.random.split(jax.random.key(1), 2)
    first = 0.1 * jax.random.normal(keys[0], (13, 50)), jnp.zeros(50)
    position = first, (0.1 * jax.random.normal(keys[1], (50, 1)), jnp.zeros(1))

    def step(t, position):
        rows = table[t % len(table)]
        return sampler.step(jax.random.fold_in(key, t), position, (x[rows], y[rows]), pace)

    return jax.lax.fori_loop(0, steps // (1 if name == "sgld" else INNER), step, position)


def theirs(name, x, y, table, steps):
    """Seconds for the given number of gradients."""
    began = time.process_time()
    jax.block_until_ready(bare(name, x, y, table, jax.random.key(0), jnp.int32(steps)))
    return time.process_time() - began


def apart(run, lengths):
    """Seconds per step, from two runs of different length."""
    took = [run(steps) for steps in lengths]
    return (took[1] - took[0]) / (lengths[1] - lengths[0])


def race(cases, rounds):
    """Seconds per step by name, one value per round, after every case has run once."""
    for case in cases.values():
        case()
    found = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(case())
    return found


def ratio(found, theirs, ours):
    return float(np.median(np.divide(found[theirs], found[ours])))


def summary(found):
    return {
        name: {"steps a second": 1 / float(np.median(took)), "seconds a step by round": took}
        for name, took in found.items()
    }


def small(rows, ask, rounds):
    """The small problem with all samplers, blackjax and posteriors."""
    data = tb.Data(*rows)
    x, y = (jnp.asarray(part) for part in rows)
    orders = [np.random.default_rng(epoch).permutation(500) for epoch in range(100)]
    table = jnp.asarray(np.concatenate(orders)[: 1562 * 32].reshape(-1, 32))
    cases = {name: partial(apart, partial(ours, method, REGRESSION, data, 32), SMALL) for name, method in OURS.items()}
    for name in ("sgld", "sghmc"):
        cases[f"blackjax {name}"] = partial(apart, partial(theirs, name, x, y, table), SMALL)
    for name in ("sgld", "sghmc", "sgnht"):
        cases[f"posteriors {name}"] = lambda name=name: ask(name)["seconds a step"]
    order = [f"{side}{name}" for name in ("sgld", "sghmc", "sgnht") for side in ("", "blackjax ", "posteriors ")]
    order = [name for name in order if name in cases]
    found = race({name: cases[name] for name in [*order, *(name for name in cases if name not in order)]}, rounds)
    ratios = {f"{name}, against {side}": ratio(found, f"{side} {name}", name) for side, name in PAIRS}
    plain = {name: 1 / ratio(found, "sghmc", name) for name in found if name.startswith("sghmc, ")}
    plain["sgnht"] = 1 / ratio(found, "sghmc", "sgnht")
    return {"samplers": summary(found), "ratios": ratios, "by a step of sghmc": plain}


PAIRS = (
    ("blackjax", "sgld"),
    ("blackjax", "sghmc"),
    ("posteriors", "sgld"),
    ("posteriors", "sghmc"),
    ("posteriors", "sgnht"),
)


def large(rows, rounds):
    """The images, against our own optimiser."""
    data = tb.Data(*rows)
    cases = {
        name: partial(apart, partial(ours, method, CLASSIFIER, data, 128), LARGE) for name, method in IMAGES.items()
    }
    found = race(cases, rounds)
    return {"methods": summary(found), "against map": {name: ratio(found, "map", name) for name in found}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--parts", nargs="+", choices=("table", "images"), default=("table", "images"))
    options = parser.parse_args()
    if "intra_op" not in os.environ.get("XLA_FLAGS", ""):
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        one = {**os.environ, "XLA_FLAGS": flags, "OMP_NUM_THREADS": "1"}
        sys.exit(subprocess.run(["taskset", "-c", "0", sys.executable, *sys.argv], env=one, check=False).returncode)
    load = os.getloadavg()[0]
    table, pictures, images = arrays()
    path = RESULTS / "sgmcmc_speed.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    found.pop("machine", None)
    found |= {"threads": 1, "rounds": options.rounds, "images": images, "load before": load}
    found["blackjax"] = blackjax.__version__
    if "table" in options.parts:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "arrays.npz"
            np.savez(made, x=table[0], y=table[1])
            with peer(options.peer, "peers_sgmcmc.py", made) as (versions, ask):
                found |= {"torch versions": versions, "13-50-1": small(table, ask, options.rounds)}
        record("sgmcmc_speed", found, show=False)
    if "images" in options.parts:
        record("sgmcmc_speed", {**found, "784-256-10": large(pictures, options.rounds)}, show=False)
