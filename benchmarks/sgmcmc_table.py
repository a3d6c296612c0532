"""Samplers at the price of SGD beside other methods, by how near they come to reference posteriors.

    [TUNBRIDGE_DATA=FOLDER] python benchmarks/sgmcmc_table.py [NAME ...] [--methods NAME ...] [--again]
    -> benchmarks/results/sgmcmc_table.json, a row at a time; rows that are there are not made again

NAME is a reference of `tunbridge.bench.recipes`, or `kin8nm` for the course of the NLL with time, which needs
uci/kin8nm.npz in FOLDER. Stochastic-gradient samplers have their defaults: 4 chains, 10,000 steps of warm-up and 25,000
after it, of which 500 are kept, batches of 32 rows (10 of the curve's 30); the others theirs. A fit is made twice with
one key: the first time compiles what methods before it did not. Seconds are of the processor, all threads: others may
use the machine. Example-gradients are rows that gradients of steps were taken of, all chains and members together.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import jax
import numpy as np
from record import RESULTS, record

import tunbridge as tb
from tunbridge.bench import fidelity, load_reference
from tunbridge.bench.recipes import RECIPES, halves

RUN = tb.Run(4, 10_000, 500, 50, 32)
RMS = tb.preconditioners.RMSprop()
FEW = 10
"""Rows a batch of the curve."""
TEST = 400
"""Points of the curve to be judged on."""


def methods(batch):
    run = tb.Run(RUN.chains, RUN.warmup, RUN.draws, RUN.thin, batch)
    cyclical = tb.schedules.Cyclical()
    return {
        "SGLD": tb.SGLD(run=run),
        "SGHMC": tb.SGHMC(run=run),
        "SGHMC-CLR": tb.SGHMC(schedule=cyclical, run=run),
        "SGHMC-CLR-Prec": tb.SGHMC(schedule=cyclical, preconditioner=RMS, run=run),
        "SGNHT": tb.SGNHT(run=run),
        "NUTS": tb.NUTS(run=tb.Run(4, 500, 500)),
        "MAP": tb.MAP(),
        "Ensemble(5)": tb.Ensemble(tb.MAP(), 5),
        "MCDropout": tb.MCDropout(),
        "SWAG": tb.SWAG(),
        "Laplace": tb.Laplace(),
        "BayesByBackprop": tb.BayesByBackprop(),
    }


class Problem:
    """What is learnt, what it is judged by, and rows a batch."""

    def __init__(self, name):
        recipe = RECIPES[name]()
        self.model, self.data, self.reference = recipe.model, recipe.data, load_reference(name)
        self.test = tb.datasets.curve(jax.random.key(5), TEST) if name == "curve" else halves(name)[1]
        self.batch = FEW if name == "curve" else 32


class Counter:
    """A callback that counts steps of all members of all fits."""

    def __init__(self):
        self.steps, self.last, self.course = 0, {}, []
        self.began = time.process_time()

    def __call__(self, event):
        members = tuple(event.members)
        before = self.last.get(members, 0)
        fresh = event.step - (before if event.step > before else 0)
        self.last[members] = event.step
        self.steps += fresh * len(members)
        self.course.append((time.process_time() - self.began, event.step, members))

    def when(self, step):
        """Seconds until every member had done so many steps."""
        return max(min(took for took, done, who in self.course if who == one and done >= step) for one in self.last)


def fit(method, model, data, key):
    """A posterior, seconds, and what was counted."""
    counter = Counter()
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.ConvergenceWarning)
        posterior = method.fit(model, data, key=key, progress=False, callbacks=(counter,))
    jax.block_until_ready(jax.tree.leaves(posterior))
    return posterior, time.process_time() - began, counter


def rows_a_step(name, method, num):
    if name == "SWAG":
        return method.batch_size(num)
    return num if not isinstance(method, tb.SGLD | tb.SGHMC | tb.SGNHT) else min(method.run.batch_size, num)


def example_gradients(name, method, posterior, counter, num):
    """Of NUTS those of warm-up are taken to be as many a step as after it."""
    if name == "NUTS":
        return float(np.mean(posterior.stats["gradients"])) * counter.steps * num
    return counter.steps * rows_a_step(name, method, num)


def scores(posterior, test, classes):
    predictive = posterior.predict(test.x)
    found = {"NLL": -tb.metrics.log_score(predictive, test.y)}
    by, score = ("accuracy", tb.metrics.accuracy) if classes else ("RMSE", tb.metrics.rmse)
    return {by: score(predictive, test.y), **found}


def mixing(posterior, x):
    """The share of functions with R-hat below 1.01, the largest at 95 %, and the step size."""
    if not isinstance(posterior, tb.Chains):
        return {}
    values = np.asarray(posterior.functions(x))
    rhat = tb.diagnostics.rhat(values)
    warm = {part.split(" ")[-1]: float(np.mean(v)) for part, v in posterior.stats.items() if "temperature" in part}
    return {"R-hat at 95 %": float(np.nanquantile(rhat, 0.95)), "temperature": warm, "notes": list(posterior.notes)}


def row(name, method, problem):
    key, num = jax.random.key(11), problem.data.num
    _, first, _ = fit(method, problem.model, problem.data, key)
    posterior, second, counter = fit(method, problem.model, problem.data, key)
    return {
        **scores(posterior, problem.test, problem.reference.classes),
        **fidelity(posterior, problem.reference),
        "example_gradients": example_gradients(name, method, posterior, counter, num),
        "seconds": second,
        "seconds_first": first,
        **mixing(posterior, problem.reference.x),
    }


def before():
    path = RESULTS / "sgmcmc_table.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    found.pop("machine", None)
    return found


def put(section, name, found):
    whole = before()
    whole.setdefault(section, {})[name] = found
    record("sgmcmc_table", whole, show=False)
    shown = {part: value for part, value in found.items() if part not in ("course", "temperature", "notes")}
    print(section, name, shown, flush=True)


def reference_row(problem):
    """How the reference itself predicts, where its inputs are the rows to be judged on."""
    reference, y = problem.reference, np.asarray(problem.test.y).reshape(-1)
    found = {"rows": problem.data.num, **reference.checks}
    if reference.classes:
        chosen = reference.probs[np.arange(len(y)), y.astype(int)]
        return {
            "accuracy": float(np.mean(reference.probs.argmax(1) == y)),
            "NLL": -float(np.log(chosen).mean()),
            **found,
        }
    if len(reference.x) != len(y):
        return found
    f, sd = reference.predictions[..., 0], reference.noise
    density = np.exp(-0.5 * ((y - f) / sd) ** 2) / (np.sqrt(2 * np.pi) * sd)
    rmse = np.sqrt(np.mean((f.mean(0) - y) ** 2))
    return {"RMSE": float(rmse), "NLL": -float(np.log(density.mean(0)).mean()), **found}


# The course of the NLL with time, of a set with many rows


def many_rows():
    file = np.load(Path(os.environ.get("TUNBRIDGE_DATA", ".")) / "uci" / "kin8nm.npz")
    x, y = file["x"], file["y"].reshape(-1)
    held = np.unpackbits(file["test"], axis=1)[0, : int(file["n"])].astype(bool)
    scaling = tb.datasets.Scaling.of(x[~held], y[~held])
    train, test = (tb.Data(scaling.inputs(x[some]), scaling.targets(y[some])) for some in (~held, held))
    return (
        tb.Model(tb.networks.MLP((50,)), tb.priors.Normal(tb.priors.fan_in(1.0)), tb.likelihoods.Gaussian(0.3)),
        train,
        test,
    )


def coursing():
    run = tb.Run(2, 10_000, 500, 50, 128)
    return {
        "SGLD": tb.SGLD(run=run),
        "SGHMC": tb.SGHMC(run=run),
        "SGHMC-CLR": tb.SGHMC(schedule=tb.schedules.Cyclical(), run=run),
        "HMC": tb.HMC(run=tb.Run(2, 150, 60)),
        "NUTS": tb.NUTS(run=tb.Run(2, 100, 40)),
    }


POINTS = 20


def course(method, model, train, test):
    """The NLL of the draws so far, of both chains, by seconds after compiling and by example-gradients."""
    short = type(method)(**{**vars(method), "run": tb.Run(2, 10, 2, 1, method.run.batch_size)})
    fit(short, model, train, jax.random.key(3))
    posterior, seconds, counter = fit(method, model, train, jax.random.key(3))
    draws, run = posterior.shape[1], method.run
    outputs = np.asarray(posterior.functions(test.x))[..., 0]
    ends = np.unique(np.geomspace(1, draws, POINTS).round().astype(int))
    y, noise = np.asarray(test.y).reshape(-1), model.likelihood.scale
    logs = -0.5 * ((y - outputs) / noise) ** 2 - np.log(noise * np.sqrt(2 * np.pi))
    nll = [-float(np.mean(np.log(np.mean(np.exp(logs[:, :end]), axis=(0, 1))))) for end in ends]
    rmse = [float(np.sqrt(np.mean((outputs[:, :end].mean((0, 1)) - y) ** 2))) for end in ends]
    reached = [counter.when(run.warmup + end * run.thin) for end in ends]
    share = float(np.mean(posterior.stats["gradients"]))
    counted = [2 * (run.warmup + int(end) * run.thin) * share * train.num for end in ends]
    found = {"seconds": reached, "NLL": nll, "RMSE": rmse, "example_gradients": counted}
    return {"course": found, "seconds": seconds, "NLL": nll[-1], "RMSE": rmse[-1], **mixing(posterior, test.x[:100])}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*RECIPES, "kin8nm"])
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    for section in options.names:
        if section == "kin8nm":
            todo, problem = coursing(), many_rows()
        else:
            problem = Problem(section)
            todo = methods(problem.batch)
            if "reference" not in before().get(section, {}):
                put(section, "reference", reference_row(problem))
        for name, method in todo.items():
            chosen = not options.methods or name in options.methods
            if chosen and (options.again or name not in before().get(section, {})):
                put(section, name, course(method, *problem) if section == "kin8nm" else row(name, method, problem))
