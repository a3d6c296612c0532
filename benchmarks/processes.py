"""Gaussian processes and networks: extrapolation of the CO2 series, and three tables.

TUNBRIDGE_DATA=FOLDER python benchmarks/processes.py [co2 | TABLE ...] -> benchmarks/results/processes.json, minutes.
The folder holds series/co2.csv (weekly, Mauna Loa) and uci/NAME.npz.
"""

import csv
import json
import os
import sys
import time
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist
import tinygp
from record import RESULTS, record
from tinygp import kernels

import tunbridge as tb
from tunbridge.bench.comparing.compare import NUMBERS
from tunbridge.predict.scaled import ScaledPredictive

FOLDER = Path(os.environ.get("TUNBRIDGE_DATA", "."))
HELD_OUT_FROM, SHOWN_TO = 1994.0, 2010.0


def co2() -> tuple[np.ndarray, np.ndarray]:
    """Means of every second month of the series: years (months, 1) and ppm (months,)."""
    with (FOLDER / "series" / "co2.csv").open() as file:
        weeks = [(row["date"][:6], float(row["co2"])) for row in csv.DictReader(file) if row["co2"]]
    months = [month for month in sorted({month for month, _ in weeks}) if int(month[4:]) % 2]
    means = np.array([np.mean([value for month, value in weeks if month == wanted]) for wanted in months])
    years = np.array([int(month[:4]) + (int(month[4:]) - 0.5) / 12 for month in months])
    return years[:, None], means


def seasons() -> kernels.Kernel:
    """Kernel of a trend, a changing season, and two kinds of irregularity (Rasmussen and Williams, section 5.4)."""
    season = kernels.ExpSquared(90.0) * kernels.ExpSineSquared(1.0, gamma=1.2)
    irregular = 0.4 * kernels.RationalQuadratic(1.2, alpha=0.8)
    return 4400.0 * kernels.ExpSquared(67.0) + 5.8 * season + irregular + 0.03 * kernels.ExpSquared(0.13)


def fit_process(kernel, x, y, key, noise: float = 0.3, restarts: int = 1) -> tuple:
    """Fit a process to standardised rows; return its predictive in the units of y, and the log evidence."""
    scaling = tb.datasets.Scaling.of(x, y)
    began = time.perf_counter()
    process = tb.bench.ExactProcess(kernel, noise, restarts=restarts)
    fitted = process.fit(scaling.inputs(x), scaling.targets(y), key=key)
    seconds = time.perf_counter() - began

    def predict(rows):
        return ScaledPredictive(fitted.predict(scaling.inputs(rows)), scaling.y_shift, scaling.y_scale)

    return predict, fitted.log_evidence, seconds


def scores(predictive, y) -> dict:
    return {name: float(score(predictive, np.asarray(y).reshape(-1, 1))) for name, score in NUMBERS.items()}


def band(predictive, digits: int) -> dict:
    lower, upper = predictive.interval(0.9)
    parts = {"mean": predictive.mean, "lower": lower, "upper": upper}
    return {name: np.asarray(part, np.float64)[:, 0].round(digits).tolist() for name, part in parts.items()}


def seasonal(kernel, x, y, key) -> tuple:
    """Fit a process to years since 1980 and centred ppm, starting from the given hyperparameters."""
    began, middle = time.perf_counter(), float(y.mean())
    fitted = tb.bench.ExactProcess(kernel, 0.2, restarts=0).fit(x - 1980, y - middle, key=key)
    seconds = time.perf_counter() - began
    return lambda at: ScaledPredictive(fitted.predict(at - 1980), np.array([middle]), np.ones(1)), seconds


def continued(key) -> dict:
    """Predictive bands beyond the end of the series, and scores on its last eight years."""
    x, y = co2()
    train = x[:, 0] < HELD_OUT_FROM
    grid = np.linspace(1985, SHOWN_TO, 300)[:, None]
    rows, bands = [], {}
    line = 1.0 * kernels.DotProduct()
    for name, kernel in (("process, seasons", seasons()), ("process, line and seasons", line + seasons())):
        predict, seconds = seasonal(kernel, x[train], y[train], key)
        rows.append({"method": name, **scores(predict(x[~train]), y[~train]), "seconds": seconds})
        bands[name] = band(predict(grid), 2)
    prior, noise = tb.priors.Normal(tb.priors.fan_in(2.0)), tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))
    tanh = tb.Model(tb.networks.MLP((50,)), prior, noise)
    relu = tb.Model(tb.networks.MLP((50,), "relu"), prior, noise)
    wide, _, wide_seconds = fit_process(tb.bench.wide_kernel(relu), x[train], y[train], key)
    rows.append({"method": "process, wide relu network", **scores(wide(x[~train]), y[~train]), "seconds": wide_seconds})
    bands["process, wide relu network"] = band(wide(grid), 2)
    chains = tb.MCLMC(run=tb.Run(chains=4, warmup=2000, draws=500, thin=10))
    plan = {
        "dropout, relu": (relu, tb.MCDropout()),
        "dropout, tanh": (tanh, tb.MCDropout()),
        "ensemble, relu": (relu, tb.Ensemble(tb.MAP(), 5)),
        "mclmc, relu": (relu, chains),
        "mclmc, tanh": (tanh, chains),
    }
    for name, (model, method) in plan.items():
        table = tb.compare(
            model,
            (x[train], y[train]),
            (x[~train], y[~train]),
            {name: method},
            baselines=False,
            key=key,
            progress=False,
        )
        (row,) = table.rows
        if isinstance(table.posteriors[name].posterior, tb.Chains):
            at = table.posteriors[name].scaling.inputs(x[~train][::6])
            row["rhat_max"] = float(np.max(tb.diagnostics.rhat(table.posteriors[name].posterior.functions(at))))
        rows.append({k: v if isinstance(v, str) else float(v) for k, v in row.items()})
        bands[name] = band(table.predict(name, grid), 2)
        print(rows[-1], flush=True)
    data = {"x": x[:, 0].round(3).tolist(), "y": y.round(2).tolist()}
    return {
        "rows": rows,
        "grid": grid[:, 0].round(3).tolist(),
        "bands": bands,
        "data": data,
        "train_rows": int(train.sum()),
    }


def table(name: str, key) -> tuple:
    """Training and test rows ((x, y), (x, y)): the first public split, or a random fifth for testing."""
    if name == "diabetes":
        train, test = tb.datasets.split(tb.datasets.diabetes(), key)
        return (train.x, train.y), (test.x, test.y)
    file = np.load(FOLDER / "uci" / f"{name}.npz")
    x, y, num = file["x"], file["y"].reshape(-1), int(file["n"])
    held = np.unpackbits(file["test"], axis=1)[:, :num].astype(bool)[0]
    return (x[~held], y[~held]), (x[held], y[held])


def beside(name: str) -> list[dict]:
    """Scores of processes and networks on one split of a table: processes once, networks with three keys."""
    train, test = table(name, jax.random.key(0))
    x, y = (np.asarray(part, np.float64) for part in train)
    model = tb.Model(
        tb.networks.MLP((50,)), tb.priors.Normal(tb.priors.fan_in(1.5)), tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))
    )
    ard = 1.0 * tinygp.transforms.Linear(0.3 * np.ones(x.shape[1]), kernels.ExpSquared(1.0))
    wide = tb.bench.wide_kernel(tb.Model(tb.networks.MLP((50,), "erf"), model.prior, model.likelihood))
    rows = []
    for label, kernel in (("process, ARD", ard), ("process, wide erf network", wide)):
        predict, evidence, seconds = fit_process(kernel, x, y, jax.random.key(0))
        found = scores(predict(np.asarray(test[0], np.float64)), test[1])
        rows.append({"table": name, "method": label, **found, "seconds": seconds, "log_evidence": evidence})
    methods = {
        "map": tb.MAP(),
        "ensemble": tb.Ensemble(tb.MAP(), 5),
        "mclmc": tb.MCLMC(run=tb.Run(chains=4, warmup=1500, draws=250, thin=10)),
    }
    for seed in range(3):
        found = tb.compare(model, train, test, methods, baselines=False, key=jax.random.key(seed), progress=False)
        for row in found.rows:
            rows.append(
                {"table": name, **{k: v if isinstance(v, str) else float(v) for k, v in row.items()}, "key": seed}
            )
    for row in rows:
        print(row, flush=True)
    return rows


def main(names: list[str]) -> None:
    path = RESULTS / "processes.json"
    figures = json.loads(path.read_text()) if path.exists() else {}
    for name in names or ["co2", "diabetes", "boston", "yacht"]:
        if name == "co2":
            figures["co2"] = continued(jax.random.key(0))
        else:
            others = [row for row in figures.get("tables", []) if row["table"] != name]
            figures["tables"] = others + beside(name)
        figures.pop("machine", None)
        record("processes", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
