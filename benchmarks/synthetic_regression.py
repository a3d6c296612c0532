"""A curve of 120 points and a network 2-100-100-100-1: chains compared with each other and with other methods.

The data is that of Izmailov et al. (2021), features (x, x^2), prior scale 0.1, noise 0.02:
izmailov_synthetic_regression.npz in the folder that TUNBRIDGE_DATA names.

    TUNBRIDGE_DATA=FOLDER python benchmarks/synthetic_regression.py [--times 1] [--work FOLDER]
    -> benchmarks/results/synthetic_regression.json

Finished runs in the work folder are read instead of repeated. Seconds are CPU seconds of all threads, with compilation;
gradients are over all 120 rows, per chain, warm-up included.
"""

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

import jax
import numpy as np
from record import record

import tunbridge as tb

KEY = jax.random.key(0)
FILE = "izmailov_synthetic_regression.npz"
WEIGHTS = 500
"""Number of weights, evenly spaced among all, for which R-hat is computed."""
SHOWN = 3
"""Stride of the inputs that are recorded for the picture."""
EDGES = [1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0]


PUBLISHED = {"trajectories": 100, "steps": 15_700}
"""Per chain in the paper's notebook: trajectories of pi / 2 prior standard deviations in steps of 1e-5."""


def problem() -> tuple[tb.Model, tb.Data, np.ndarray, np.ndarray]:
    """The model, the data, and 120 inputs from -14 to 22 with their features."""
    file = np.load(Path(os.environ["TUNBRIDGE_DATA"]) / FILE)
    network = tb.networks.MLP((100, 100, 100), "relu", outputs=1)
    model = tb.Model(network, tb.priors.Normal(0.1), tb.likelihoods.Gaussian(0.02))
    return model, tb.Data(file["f"], file["y"]), file["x_"], file["f_"]


def plan(times: int) -> dict:
    """Methods by name, and the one whose posterior they start from; None is the method's own start."""
    train = tb.Train(1500 * times)
    small = tb.Run(chains=4, warmup=4000 * times, draws=100, thin=40 * times, batch_size=30)
    mclmc = tb.MCLMC(run=tb.Run(chains=4, warmup=1500 * times, draws=150 * times, thin=10))
    return {
        "map": (tb.MAP(train=train), None),
        "ensemble": (tb.Ensemble(tb.MAP(train=train), 4 * times), None),
        "mcdropout": (tb.MCDropout(rate=0.05, train=train), None),
        "swag": (tb.SWAG(tb.MAP(train=train)), None),
        "meanfield": (tb.MeanField(train=tb.Train(4000 * times)), None),
        "sgld": (tb.SGLD(run=small), None),
        "sghmc": (tb.SGHMC(run=small), None),
        "sghmc from the ensemble": (tb.SGHMC(run=small), "ensemble"),
        "mclmc from the prior": (mclmc, None),
        "hmc from the ensemble": (tb.HMC(steps=100 * times, run=tb.Run(4, 40 * times, 40 * times)), "ensemble"),
    }


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


def gradients(run: tb.Run, posterior: tb.Chains) -> float:
    """Gradients over all rows, per chain, warm-up included."""
    return float(np.mean(posterior.stats["gradients"])) * (run.warmup + run.draws * run.thin)


def fit(name: str, method: tb.MAP, model: tb.Model, data: tb.Data, init: tb.Point | None, work: Path) -> tuple:
    """A posterior and the seconds of its fit, read from the work folder if it was run before."""
    folder, began = work / name.replace(" ", "-"), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.ConvergenceWarning)
        posterior = method.fit(model, data, key=KEY, init=init, checkpoint=folder, progress=False)
    took = folder.with_suffix(".seconds")
    if not took.exists():
        took.write_text(f"{time.process_time() - began}")
    return posterior, float(took.read_text())


def main(times: int, work: Path) -> None:
    model, data, x, inputs = problem()
    posteriors, rows, mixed, failed = {}, [], {}, {}
    for name, (method, start) in plan(times).items():
        try:
            init = None if start is None else posteriors[start]
            posterior, seconds = fit(name, method, model, data, init, work / str(times))
        except tb.NumericalError as error:
            failed[name] = str(error).partition(" Use ")[0]
            print(name, failed[name], flush=True)
            continue
        posteriors[name] = posterior
        rows.append({"method": name, "seconds": seconds, "settings": posterior.provenance.method})
        if isinstance(posterior, tb.Chains):
            mixed[name] = mixing(posterior, inputs)
            rows[-1]["gradients"] = gradients(method.run, posterior)
        print(rows[-1], mixed.get(name, ""), flush=True)
    whole = [name for name in mixed if plan(times)[name][0].run.batch_size is None]
    reference = min(whole, key=lambda name: mixed[name]["functions"]["rhat_median"])
    truth = posteriors[reference].predict(inputs).functions
    for row in rows:
        predictive = posteriors[row["method"]].predict(inputs)
        row["rmse"] = tb.metrics.rmse(posteriors[row["method"]].predict(data.x), data.y)
        row["sliced_wasserstein"] = tb.metrics.sliced_wasserstein(predictive.functions, truth, KEY)
        row["curve"] = curve(predictive)
    halves = [posteriors[reference].functions(inputs)[half].reshape(-1, len(x)) for half in (slice(0, 2), slice(2, 4))]
    figures = {
        "times": times,
        "reference": reference,
        "published": PUBLISHED,
        "x": x[::SHOWN].astype(float).round(3).tolist(),
        "rhat_edges": EDGES,
        "methods": rows,
        "failed": failed,
    }
    figures["between_halves"] = tb.metrics.sliced_wasserstein(*halves, KEY)
    record("synthetic_regression", {**figures, "mixing": mixed})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1, help="multiplier of all run lengths (default: 1, minutes)")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "synthetic", help="folder of runs to resume from"
    )
    options = parser.parse_args()
    main(options.times, options.work)
