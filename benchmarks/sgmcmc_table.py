"""Distance of stochastic-gradient samplers and other methods to reference posteriors.

    [TUNBRIDGE_DATA=FOLDER] python benchmarks/sgmcmc_table.py [NAME ...] [--methods NAME ...] [--again]
    -> benchmarks/results/sgmcmc_table.json, one row at a time; existing rows are not measured again

NAME is a reference of `tunbridge.bench.truth.recipes`, or `kin8nm` for the NLL over time, which needs uci/kin8nm.npz in
FOLDER. Stochastic-gradient samplers have their defaults: 4 chains, 10,000 steps of warm-up and 25,000 after it, of
which 500 are kept, minibatches of 32 rows (10 of the curve's 30); other methods have theirs. Each fit is made twice
with one key; the first includes compilation that earlier methods did not trigger. Seconds are CPU seconds of all
threads, since other work may share the machine. Example-gradients count the rows of all gradient evaluations, summed
over chains and members.
"""

import argparse
import os
from pathlib import Path

import jax
import numpy as np
from judged import Problem, fit, judge, mixing, reference_row
from record import put, recorded

import tunbridge as tb
from tunbridge.bench.truth.recipes import RECIPES

RUN = tb.Run(4, 10_000, 500, 50, 32)
RMS = tb.preconditioners.RMSprop()


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


def row(method, problem):
    first = judge(method, problem, jax.random.key(11))
    return {**judge(method, problem, jax.random.key(11)), "seconds_first": first["seconds"]}


def keep(section, name, found):
    put("sgmcmc_table", section, name, found)
    shown = {part: value for part, value in found.items() if part not in ("course", "temperature", "notes")}
    print(section, name, shown, flush=True)


# NLL over time, for a set with many rows


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
        "MCLMC": tb.MCLMC(run=tb.Run(2, 1000, 250, 10)),
        "HMC": tb.HMC(run=tb.Run(2, 150, 60)),
        "NUTS": tb.NUTS(run=tb.Run(2, 100, 40)),
    }


POINTS = 20


def course(method, model, train, test):
    """NLL of the draws so far, pooled over both chains, by seconds after compilation and by example-gradients."""
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
            if "reference" not in recorded("sgmcmc_table").get(section, {}):
                keep(section, "reference", reference_row(problem))
        for name, method in todo.items():
            chosen = not options.methods or name in options.methods
            if chosen and (options.again or name not in recorded("sgmcmc_table").get(section, {})):
                keep(section, name, course(method, *problem) if section == "kin8nm" else row(method, problem))
