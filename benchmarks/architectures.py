"""Model choice by evidence: architectures, prior scales and noise, and the true number of units in simulations.

    TUNBRIDGE_DATA=FOLDER python benchmarks/architectures.py rank --jobs 16      evidence and test NLL of architectures
    TUNBRIDGE_DATA=FOLDER python benchmarks/architectures.py hyper --jobs 16     ways to choose prior scale and noise
    python benchmarks/architectures.py simulate --jobs 16                        the posterior of the number of units ->
    benchmarks/results/architectures.json

FOLDER holds the tables uci/*.npz. A row is written as soon as it is measured, and is not measured again; `--quick` is a
short trial of the script.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist
from record import RESULTS, record
from scipy import stats
from scipy.special import gammaln, logsumexp
from sklearn import datasets
from sklearn.model_selection import KFold, train_test_split

import tunbridge as tb
from tunbridge.bench.beliefs.evidence import learn, score
from tunbridge.inference.standardised import fit_standardised
from tunbridge.model import defaults
from tunbridge.model.priors import ByPath, Normal, fan_in

OUT = RESULTS / "architectures.json"
HIDDEN = ((2,), (5,), (10,), (20,), (50,), (100,), (10, 10), (50, 50), (20, 20, 20))
ARCHITECTURES = {"linear": tb.networks.MLP(())} | {
    f"{'-'.join(map(str, hidden))} {activation}": tb.networks.MLP(hidden, activation)
    for hidden in HIDDEN
    for activation in ("tanh", "relu")
}
BUNDLED = {
    "diabetes": datasets.load_diabetes,
    "breast_cancer": datasets.load_breast_cancer,
    "vintners": datasets.load_wine,
    "digits": datasets.load_digits,
}
TABLES = ("diabetes", "boston", "concrete", "energy", "yacht", "wine", "breast_cancer", "vintners")
NUMBERS = ("diabetes", "boston", "concrete", "energy", "yacht")
SPLITS = 3
SCALES, FOLDS = (0.1, 0.3, 1.0, 3.0, 10.0), 3
UNITS, TRUE, NUM, NOISE = range(1, 9), 3, 200, 0.05


def table(name, split):
    """Training and test rows, (x, y) each: nine to one by the own splits of tables from FOLDER, else seven to three."""
    if name in BUNDLED:
        x, y = BUNDLED[name](return_X_y=True)
        stratify = y if y.dtype.kind == "i" else None
        parts = train_test_split(x, y, test_size=0.3, random_state=split, stratify=stratify)
        return (parts[0], parts[2]), (parts[1], parts[3])
    file = np.load(Path(os.environ["TUNBRIDGE_DATA"]) / "uci" / f"{name}.npz")
    test = np.unpackbits(file["test"], axis=1)[split, : int(file["n"])].astype(bool)
    return (file["x"][~test], file["y"][~test]), (file["x"][test], file["y"][test])


def likelihood(y):
    """Default likelihood for classes or for numbers, by the type of y."""
    return defaults.of_classes(len(np.unique(y))) if y.dtype.kind == "i" else defaults.of_numbers()


def architecture(name, label, starts):
    """Evidence and test NLL of one architecture on all splits of a table."""
    found = []
    for split in range(SPLITS):
        train, test = table(name, split)
        model = tb.Model(ARCHITECTURES[label], defaults.prior(), likelihood(train[1]))
        ranking = tb.bench.rank_models({label: model}, train, test, starts=starts, key=jax.random.key(split))
        gaussian = ranking.posteriors[label].posterior.gaussian
        told = {"structure": type(gaussian.structure).__name__, "decrement": float(gaussian.decrement), **at(gaussian)}
        row = {one: value for one, value in ranking.rows[0].items() if one not in ("model", "probability")}
        found.append({"data": name, "model": label, "split": split, **row, **told})
    return found


def at(gaussian):
    """The fitted noise and prior scale, the first of each if there are several."""
    noise, scales = (jax.tree.leaves(tree) for tree in (gaussian.params.noise, gaussian.params.scales))
    named = {"noise": noise, "scale": scales}
    return {name: float(np.exp(np.ravel(leaves[0])[0])) for name, leaves in named.items() if leaves}


def correlations(rows):
    """Rank correlations of evidence and test log score: for each split, and for the means over splits."""
    found = []
    for name in dict.fromkeys(row["data"] for row in rows):
        of = [row for row in rows if row["data"] == name]
        labels = sorted({row["model"] for row in of})
        pairs = {(row["model"], row["split"]): (row["log evidence"], -row["NLL"]) for row in of}
        splits = [one for one in range(SPLITS) if all((label, one) in pairs for label in labels)]
        if len(labels) < 3 or not splits:
            continue
        cube = np.array([[pairs[label, one] for label in labels] for one in splits])
        each = [float(stats.spearmanr(*one.T).statistic) for one in cube]
        mean = float(stats.spearmanr(*cube.mean(axis=0).T).statistic)
        chosen = [{"NLL": float(-one[one[:, 0].argmax(), 1]), "best NLL": float(-one[:, 1].max())} for one in cube]
        found.append({"data": name, "models": len(labels), "by split": each, "of means": mean, "chosen": chosen})
    return found


def layered(layers):
    """A prior with one scale per layer, separately for weights and biases."""
    return ByPath({f"layers/{i}/{kind}": defaults.prior() for i in range(layers) for kind in ("weight", "bias")})


def hyper(name, split):
    """Test NLL with prior scale and noise chosen in each way, on a network of 50 tanh units."""
    train, test = table(name, split)
    network, key = tb.networks.MLP((50,)), jax.random.key(split)

    def model(prior):
        return tb.Model(network, prior, likelihood(train[1]))

    ways = {
        "scale 1": (tb.Laplace(), Normal(1.0)),
        "scale 1, fan-in": (tb.Laplace(), Normal(fan_in(1.0))),
        "evidence": (tb.Laplace(), defaults.prior()),
        "evidence, a scale a layer": (tb.Laplace(), layered(2)),
        "online": (tb.Laplace(tune="online"), defaults.prior()),
        "online, a scale a layer": (tb.Laplace(tune="online"), layered(2)),
        "validation": (tb.Laplace(tune="validation"), defaults.prior()),
    }
    found = []
    for way, (method, prior) in ways.items():
        one = learn(model(prior), train, method, key=key)
        gaussian = one.posterior.posterior.gaussian
        row = {"log evidence": one.log_evidence - one.unit, **score(one.posterior, model(prior), train, test)}
        curve = np.asarray(gaussian.curve["log_evidence"], float) - one.unit
        row |= {"seconds": one.seconds, **at(gaussian)} | ({"curve": curve.tolist()} if len(curve) > 1 else {})
        found.append({"data": name, "split": split, "way": way, **row})
    began = time.perf_counter()
    scale = by_folds(model, train, key)
    spent = time.perf_counter() - began
    for way, method in {"folds, MAP": tb.MAP(), "folds": tb.Laplace(tune=None)}.items():
        began = time.perf_counter()
        chosen = model(Normal(fan_in(scale)))
        posterior = fit_standardised(method, chosen, *train, key=key, progress=False)
        seconds = spent + time.perf_counter() - began
        row = {**score(posterior, chosen, train, test), "seconds": seconds, "scale": scale}
        found.append({"data": name, "split": split, "way": way, **row})
    return found


def by_folds(model, train, key):
    """The prior scale with the best cross-validated log score, by MAP with noise from held-out residuals."""
    x, y = train
    scores = []
    for scale in SCALES:
        one, total = model(Normal(fan_in(scale))), 0.0
        for rest, held in KFold(FOLDS, shuffle=True, random_state=0).split(x):
            posterior = fit_standardised(tb.MAP(), one, x[rest], y[rest], key=key, progress=False)
            total += score(posterior, one, (x[rest], y[rest]), (x[held], y[held]))["NLL"]
        scores.append(total)
    return SCALES[int(np.nanargmin(scores))]


def means(rows):
    """Mean test NLL of each way on each table, over the splits."""
    pairs = dict.fromkeys((row["data"], row["way"]) for row in rows)
    scores = {pair: [row["NLL"] for row in rows if (row["data"], row["way"]) == pair] for pair in pairs}
    return [{"data": name, "way": way, "NLL": float(np.mean(scores[name, way]))} for name, way in pairs]


def simulated(number, num):
    """Rows simulated from a network of three tanh units whose steps are well separated."""
    rng = np.random.default_rng(number)
    centres = np.linspace(-2.0, 2.0, TRUE) + rng.uniform(-0.3, 0.3, TRUE)
    slopes, heights = rng.uniform(1.5, 4.0, TRUE), rng.uniform(0.7, 1.5, TRUE) * rng.choice([-1.0, 1.0], TRUE)
    x = rng.uniform(-3.0, 3.0, (num, 1))
    y = np.tanh(slopes * (x - centres)) @ heights + NOISE * rng.normal(size=num)
    return x, y


def units(number, m, starts):
    """Evidence, leave-one-out score and test NLL of m units on one simulated data set."""
    x, y = simulated(number, NUM + 1000)
    train, test = (x[:NUM], y[:NUM]), (x[NUM:], y[NUM:])
    wide = Normal(dist.LogNormal(0.5, 1.0))
    prior = ByPath({"layers/0/weight": wide, "layers/0/bias": wide, "layers/1/*": wide})
    model = tb.Model(tb.networks.MLP((m,)), prior, defaults.of_numbers())
    point = tb.MAP(train=tb.Train(steps=10_000))
    one = learn(model, train, tb.Laplace(point=point), key=jax.random.key(number), starts=starts)
    row = {"simulation": number, "units": m, "log evidence": one.log_evidence - one.unit}
    row |= {"copies": float(m * np.log(2.0) + gammaln(m + 1)), "loo": left_out(one.posterior, *train)}
    return [row | score(one.posterior, model, train, test) | {"seconds": one.seconds}]


def left_out(fitted, x, y):
    """Mean log density of each row given the others, by the linearised network: residuals over 1 - leverage."""
    mean, covariance = (np.asarray(one) for one in fitted.posterior.moments(fitted.scaling.inputs(x)))
    noise = float(np.exp(jax.tree.leaves(fitted.posterior.gaussian.params.noise)[0]))
    leverage = np.clip(covariance[:, 0, 0] / noise**2, 0.0, 1.0 - 1e-6)
    off = (fitted.scaling.targets(y)[:, 0] - mean[:, 0]) / (1.0 - leverage)
    scale = noise / np.sqrt(1.0 - leverage)
    return float(np.mean(stats.norm(0.0, scale).logpdf(off)) - np.log(fitted.scaling.y_scale[0]))


def peaks(rows):
    """The number of units that each criterion chooses, per simulated data set."""
    found = []
    for number in sorted({row["simulation"] for row in rows}):
        of = sorted((row for row in rows if row["simulation"] == number), key=lambda row: row["units"])
        judges = {
            "evidence": [row["log evidence"] for row in of],
            "evidence, copies counted": [row["log evidence"] + row["copies"] for row in of],
            "leave one out": [row["loo"] for row in of],
            "test": [-row["NLL"] for row in of],
        }
        chosen = {judge: of[int(np.argmax(values))]["units"] for judge, values in judges.items()}
        log_p = np.array(judges["evidence"])
        found.append({"simulation": number, **chosen, "posterior": np.exp(log_p - logsumexp(log_p)).tolist()})
    judges = [name for name in found[0] if name not in ("simulation", "posterior")] if found else []
    right = {judge: sum(one[judge] == TRUE for one in found) for judge in judges}
    return {"true units": TRUE, "points": NUM, "noise": NOISE, "right": right, "peaks": found}


class Study:
    """A kind of task: its arguments, the columns that identify a row's task, and the summary of all rows."""

    def __init__(self, measure, tasks, names, told):
        self.measure, self.tasks, self.names, self.told = measure, tasks, names, told

    def left(self, rows):
        """The tasks that have no rows yet."""
        done = {tuple(row[name] for name in self.names) for row in rows}
        return [task for task in self.tasks if task not in done]


STUDIES = {
    "rank": Study(
        architecture,
        [(name, label) for name in TABLES for label in ARCHITECTURES],
        ("data", "model"),
        lambda rows: {"correlations": correlations(rows)},
    ),
    "hyper": Study(
        hyper,
        [(name, split) for name in NUMBERS for split in range(SPLITS)],
        ("data", "split"),
        lambda rows: {"means": means(rows)},
    ),
    "simulate": Study(units, [(number, m) for number in range(10) for m in UNITS], ("simulation", "units"), peaks),
}


def alone(cores):
    """Pin a worker to one core, and silence warnings of unconverged modes: each row records its Newton decrement."""
    os.sched_setaffinity(0, {cores.get()})
    warnings.simplefilter("ignore", tb.ConvergenceWarning)


def main(what, jobs, starts, only, quick):
    """Measure the missing tasks, each in a process, and write the file after each."""
    study, figures = STUDIES[what], {}
    if OUT.exists():
        figures = {name: part for name, part in json.loads(OUT.read_text()).items() if name != "machine"}
    rows = figures.get(what, {}).get("rows", [])
    tasks = [task for task in study.left(rows) if not only or str(task[0]) in only]
    extra = () if what == "hyper" else (starts,)
    spawn = multiprocessing.get_context("spawn")
    cores = spawn.Queue()
    usable = sorted(os.sched_getaffinity(0))
    for number in range(jobs):
        cores.put(usable[number % len(usable)])
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=alone, initargs=(cores,)) as pool:
        running = {pool.submit(study.measure, *task, *extra): task for task in (tasks[:2] if quick else tasks)}
        for future in as_completed(running):
            if error := future.exception():
                print(running[future], "failed:", repr(error)[:300], file=sys.stderr, flush=True)
                continue
            rows = sorted([*rows, *future.result()], key=lambda row: [row[name] for name in study.names])
            print(json.dumps(future.result()), flush=True)
            if not quick:
                figures[what] = {"starts": starts, "rows": rows, **study.told(rows)}
                with contextlib.redirect_stdout(None):
                    record("architectures", figures, "architectures.py rank, hyper, simulate")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=STUDIES)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--starts", type=int, default=2, help="fits per model, of which the best is kept (default: 2)")
    parser.add_argument("--only", nargs="*", default=(), help="tables or simulation numbers (default: all)")
    parser.add_argument("--quick", action="store_true", help="run two tasks and write nothing")
    main(**vars(parser.parse_args()))
