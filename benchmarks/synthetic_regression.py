"""A curve of 120 points and a network 2-100-100-100-1: long chains against MAP, ensemble, dropout and SWAG.

The data is that of Izmailov et al. (2021), features (x, x^2), prior scale 0.1, noise 0.02:
izmailov_synthetic_regression.npz in the folder that TUNBRIDGE_DATA names.

TUNBRIDGE_DATA=FOLDER python benchmarks/synthetic_regression.py [--quick]

-> benchmarks/results/synthetic_regression.json. Without --quick: HMC and ten times as many steps; hours on two cores.
"""

import argparse
import os
import time
from pathlib import Path

import jax
import numpy as np
from record import record

import tunbridge as tb

FILE = "izmailov_synthetic_regression.npz"
WEIGHTS = 500
"""Of how many weights, evenly spaced among all, R-hat is taken."""
SHOWN = 3
"""Every which input is written down for the picture."""
EDGES = [1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0]


def problem() -> tuple[tb.Model, tb.Data, np.ndarray, np.ndarray]:
    """The model, the data, and 120 inputs from -14 to 22 with their features."""
    file = np.load(Path(os.environ["TUNBRIDGE_DATA"]) / FILE)
    network = tb.networks.MLP((100, 100, 100), "relu", outputs=1)
    model = tb.Model(network, tb.priors.Normal(0.1), tb.likelihoods.Gaussian(0.02))
    return model, tb.Data(file["f"], file["y"]), file["x_"], file["f_"]


def points(quick: bool) -> dict:
    train = tb.Train(1500 if quick else 10_000)
    return {
        "map": tb.MAP(train=train),
        "ensemble": tb.Ensemble(tb.MAP(train=train), 4 if quick else 20),
        "mcdropout": tb.MCDropout(rate=0.05, train=train),
        "swag": tb.SWAG(tb.MAP(train=train)),
    }


def chains(quick: bool) -> dict:
    """Samplers, and what they start from; None is the prior."""
    times = 1 if quick else 10
    mclmc = tb.MCLMC(run=tb.Run(chains=4, warmup=1500 * times, draws=150 * times, thin=10))
    found = {"mclmc from the prior": (mclmc, None), "mclmc from the ensemble": (mclmc, "ensemble")}
    if not quick:
        run = tb.Run(chains=4, warmup=100, draws=100)
        found["hmc from the ensemble"] = (tb.HMC(max_steps=16_000, run=run), "ensemble")
    return found


def mixing(posterior: tb.Chains, inputs: np.ndarray) -> dict:
    """R-hat and effective sample sizes of functions and of weights, and the log density at both ends of the chains."""
    functions = posterior.functions(inputs)
    leaves = [np.asarray(leaf).reshape(*posterior.shape, -1) for leaf in jax.tree.leaves(posterior.params)]
    flat = np.concatenate(leaves, axis=-1)
    weights = flat[..., np.linspace(0, flat.shape[-1] - 1, WEIGHTS).round().astype(int)]
    density = np.asarray(posterior.stats["log_density"])
    found = {"log_density_first_half": float(density[:, : density.shape[1] // 2].mean()), "notes": posterior.notes}
    found["log_density_second_half"] = float(density[:, density.shape[1] // 2 :].mean())
    for name, values in (("functions", functions), ("weights", weights)):
        rhat, ess = tb.diagnostics.rhat(values).ravel(), tb.diagnostics.ess_bulk(values).ravel()
        counts = np.histogram(np.clip(rhat, EDGES[0], EDGES[-1]), EDGES)[0]
        found[name] = {
            "rhat_histogram": counts.tolist(),
            "rhat_median": float(np.median(rhat)),
            "rhat_99": float(np.quantile(rhat, 0.99)),
            "share_below_1.01": float(np.mean(rhat < 1.01)),
            "ess_median": float(np.median(ess)),
        }
    return found


def curve(predictive: tb.Predictive) -> dict:
    functions = np.asarray(predictive.functions, np.float64)[:, ::SHOWN, 0]
    return {"mean": functions.mean(0).round(4).tolist(), "sd": functions.std(0).round(4).tolist()}


def main(quick: bool) -> None:
    model, data, x, inputs = problem()
    key, posteriors, rows, mixed = jax.random.key(0), {}, [], {}
    jobs = {name: (method, None) for name, method in points(quick).items()} | chains(quick)
    for name, (method, start) in jobs.items():
        began = time.perf_counter()
        init = None if start is None else posteriors[start]
        posteriors[name] = method.fit(model, data, key=key, init=init, progress=False)
        seconds = time.perf_counter() - began
        if isinstance(posteriors[name], tb.Chains):
            mixed[name] = mixing(posteriors[name], inputs)
        rows.append({"method": name, "seconds": seconds, "settings": posteriors[name].provenance.method})
        print(name, f"{seconds:.0f} s", mixed.get(name, ""), flush=True)
    reference = min(mixed, key=lambda name: mixed[name]["functions"]["rhat_median"])
    truth = posteriors[reference].predict(inputs).functions
    for row in rows:
        predictive = posteriors[row["method"]].predict(inputs)
        row["rmse"] = tb.metrics.rmse(posteriors[row["method"]].predict(data.x), data.y)
        row["sliced_wasserstein"] = tb.metrics.sliced_wasserstein(predictive.functions, truth, key)
        row["curve"] = curve(predictive)
    halves = [posteriors[reference].functions(inputs)[half].reshape(-1, len(x)) for half in (slice(0, 2), slice(2, 4))]
    figures = {
        "quick": quick,
        "reference": reference,
        "x": x[::SHOWN].astype(float).round(3).tolist(),
        "rhat_edges": EDGES,
        "methods": rows,
    }
    figures["between_halves"] = tb.metrics.sliced_wasserstein(*halves, key)
    record("synthetic_regression", {**figures, "mixing": mixed})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="what two cores do in minutes")
    main(parser.parse_args().quick)
