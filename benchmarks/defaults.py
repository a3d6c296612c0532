"""Scores of every method with its defaults and the default model, as `BayesianRegressor` and `Classifier` fit it.

    TUNBRIDGE_DATA=FOLDER python benchmarks/defaults.py measure STAGE [--tables NAME ...] [--methods NAME ...]
        [--splits 5] [--workers 2] [--again] [--hidden 50 50] [--batches] [--gap]
                                               -> benchmarks/results/defaults.json, one row at a time
    python benchmarks/defaults.py table [STAGE ...]          prints the table of one stage, or of several side by side

STAGE names the state of the code, such as `before` and `after`. Tables: three UCI tables with their public splits,
diabetes and three tables of classes with random splits; mushroom has 1,000 training rows; any UCI table may be named.
`--hidden` is the network's hidden layers in place of the default's, `--batches` trains in batches of 256 rows, as
`Auto` does above 5,000 rows; with `--gap` split i trains without the middle third of input i and tests on it
(Foong et al. 2019). `reference` is a run of MCLMC with four times the default draws, `lastlayer` is Laplace
of the last layer, `unrefined` Laplace with the normal at the mode also for classes; rows of Laplace have the NLL of
the network at the mean, `point`, and the bounds of the refinement too. The columns are the NLL on test rows, in nats,
the coverage of 90 % intervals (for classes the accuracy), the root mean square of the epistemic standard deviation
(for classes the root of the mutual information) relative to that of the reference, and the bound of variational
methods.
"""

import argparse
import json
import multiprocessing
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ.get("TUNBRIDGE_DATA", "."))
NUMBERS, CLASSES = ("yacht", "energy", "concrete", "diabetes"), ("breast_cancer", "growers", "mushroom")
REFERENCE = "reference"
METHODS = ("map", "ensemble", "mcdropout", "swag", "laplace", "neurallinear", "vbll", "meanfield", "bayesbybackprop")
METHODS += ("unrefined", "lastlayer", "lowrank", "matrixnormalvi", "ivon", "sgld", "sghmc", "sgnht", "mclmc", REFERENCE)
_MUSHROOMS = 1000


def load(name, split, gap=False):
    """Rows and targets for training and for testing."""
    from real_sets import UCI, mushrooms, uci_rows

    if gap:
        rows = load(name, 0)
        x, y = np.concatenate(rows[::2]), np.concatenate(rows[1::2])
        order, third = np.argsort(x[:, split], kind="stable"), len(y) // 3
        held = np.isin(np.arange(len(y)), order[third : len(y) - third])
        return x[~held], y[~held], x[held], y[held]
    if name in UCI:
        return uci_rows(name, split)
    x, y = mushrooms() if name == "mushroom" else _bundled(name)
    order = np.random.default_rng(split).permutation(len(y))
    train = order[: _MUSHROOMS if name == "mushroom" else len(y) * 4 // 5]
    test = order[len(train) : len(train) + 2000]
    return x[train], y[train], x[test], y[test]


def _bundled(name):
    import tunbridge as tb

    data = {"growers": "wine"}.get(name, name)
    rows = getattr(tb.datasets, data)()
    y = np.asarray(rows.y).reshape(-1)
    return np.asarray(rows.x), y.astype(int) if name in CLASSES else y


def method_of(name, batches=False):
    import tunbridge as tb

    if name == REFERENCE:
        run = tb.MCLMC().run
        return tb.MCLMC(run=tb.Run(run.chains, run.warmup, run.draws, 4 * run.thin))
    kinds = {"lastlayer": {"subset": tb.subsets.LastLayer()}, "unrefined": {"refine": False}}
    fields = kinds.get(name, {})
    if batches:
        train = tb.Train(10_000, 256)
        fields |= {"train": train} if name in ("map", "meanfield") else {"point": tb.MAP(train=train)}
    return tb.METHODS["laplace" if name in kinds else name](**fields)


def measure(table, method, split, hidden=None, batches=False, gap=False):
    """One row: scores on the test rows, the bound of variational methods, and CPU seconds."""
    import jax

    import tunbridge as tb
    from tunbridge.inference.posteriors import Point
    from tunbridge.inference.standardised import fit_standardised
    from tunbridge.model import defaults

    x, y, x_test, y_test = load(table, split, gap)
    of_classes = table in CLASSES
    likelihood = defaults.of_classes(int(y.max()) + 1) if of_classes else defaults.of_numbers()
    network = tb.networks.MLP(tuple(hidden)) if hidden else defaults.network(len(x))
    model = tb.Model(network, defaults.prior(), likelihood)
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tb.ConvergenceWarning)
            posterior = fit_standardised(
                method_of(method, batches), model, x, y, key=jax.random.key(split), progress=False
            )
        predictive = posterior.predict(x_test)
        rows = y_test if of_classes else y_test[:, None]
        row = {"NLL": -float(np.mean(np.asarray(predictive.log_prob(rows))))}
        if of_classes:
            row["accuracy"] = float(np.mean(np.argmax(np.asarray(predictive.probs), axis=1) == y_test))
        else:
            low, high = map(np.asarray, predictive.interval(0.9))
            row["coverage"] = float(np.mean((rows >= low) & (rows <= high)))
            row["RMSE"] = float(np.sqrt(np.mean((np.asarray(predictive.mean) - rows) ** 2)))
            row["noise"] = float(np.sqrt(np.mean(np.asarray(predictive.aleatoric))))
        row["sd"] = float(np.sqrt(max(float(np.mean(np.asarray(predictive.epistemic))), 0.0)))
        if (gaussian := getattr(posterior.posterior, "gaussian", None)) is not None and of_classes:
            point = Point(gaussian.model, gaussian.key, gaussian.params).predict(posterior.scaling.inputs(x_test))
            row["point"] = -float(np.mean(np.asarray(point.log_prob(rows))))
            row["bounds"] = np.asarray(gaussian.curve.get("bound", [])).tolist()
        if hasattr(posterior.posterior, "elbo"):
            scaling = posterior.scaling
            targets = y if of_classes else (y[:, None] - scaling.y_shift) / scaling.y_scale
            row["bound"] = posterior.posterior.elbo(tb.Data(scaling.inputs(x), targets)).value
    except tb.TunbridgeError as error:
        row = {"refused": str(error)[:200]}
    return {**row, "seconds": time.process_time() - began}


def _pinned(counter):
    """Give each worker a core of its own."""
    with counter.get_lock():
        number, counter.value = counter.value, counter.value + 1
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[number % len(allowed)]})


def run(options):
    from record import put, recorded

    stage, cost = recorded("defaults").get(options.stage, {}), {m: i for i, m in enumerate(METHODS)}
    splits = {
        name: min(options.splits, load(name, 0)[0].shape[1]) if options.gap else options.splits
        for name in options.tables
    }
    wanted = [(name, method, i) for name in options.tables for method in options.methods for i in range(splits[name])]
    todo = [job for job in wanted if options.again or f"{job[1]} {job[2]}" not in stage.get(job[0], {})]
    todo.sort(key=lambda job: -cost[job[1]])  # the longest first
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, context, _pinned, (context.Value("i", 0),)) as pool:
        jobs = {pool.submit(measure, *job, options.hidden, options.batches, options.gap): job for job in todo}
        for done in as_completed(jobs):
            table, method, split = jobs[done]
            stage.setdefault(table, {})[f"{method} {split}"] = done.result()
            put("defaults", options.stage, table, stage[table], "defaults.py measure")
            print(table, method, split, json.dumps(done.result()), flush=True)


def table(stages):
    """Markdown: a row per method, for each table NLL, coverage or accuracy, and sd over the reference's."""
    from record import recorded

    whole = recorded("defaults")
    for stage in stages or whole:
        names = list(dict.fromkeys(name for name in (*NUMBERS, *CLASSES, *whole[stage]) if name in whole[stage]))
        print(f"\n{stage}\n\n| method | " + " | ".join(names) + " |\n|" + " --- |" * (1 + len(names)))
        for method in METHODS:
            print(f"| {method} | " + " | ".join(_cell(whole[stage][name], method) for name in names) + " |")


def _cell(rows, method):
    def values(which, field):
        return [row[field] for name, row in rows.items() if name.split()[0] == which and field in row]

    if not (nll := values(method, "NLL")):
        return ""
    bound = f", bound {np.mean(values(method, 'bound')):.0f}" if values(method, "bound") else ""
    share = values(method, "coverage") or values(method, "accuracy")
    reference = values(REFERENCE, "sd")
    ratio = f", {np.mean(values(method, 'sd')) / np.mean(reference):.2f}" if reference else ""
    return f"{np.mean(nll):.3f}, {np.mean(share):.3f}{ratio}{bound}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("stage")
    measuring.add_argument("--tables", nargs="+", default=[*NUMBERS, *CLASSES])
    measuring.add_argument("--methods", nargs="+", default=[*METHODS])
    measuring.add_argument("--splits", type=int, default=5)
    measuring.add_argument("--workers", type=int, default=os.cpu_count())
    measuring.add_argument("--again", action="store_true")
    measuring.add_argument("--hidden", nargs="+", type=int)
    measuring.add_argument("--batches", action="store_true")
    measuring.add_argument("--gap", action="store_true")
    commands.add_parser("table").add_argument("stages", nargs="*")
    options = parser.parse_args()
    run(options) if options.command == "measure" else table(options.stages)
