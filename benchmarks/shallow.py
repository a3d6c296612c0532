"""Shallow networks: speed beside NUTS, series, needless inputs, linear coefficients, and which columns matter.

    [TUNBRIDGE_DATA=FOLDER] python benchmarks/shallow.py [speed] [series] [inputs] [coverage] [selection]
    -> benchmarks/results/shallow.json, one row at a time

`speed` needs numpyro, which Tunbridge installs: the effective sample size of the function at 25 inputs, for each CPU
second of a second fit, whose programs are compiled. All methods sample the same posterior of a fixed number of units,
with known noise. `series` needs the folder series/ in FOLDER.
"""

import argparse
import os
import time
import warnings
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from record import put

import tunbridge as tb
from tunbridge.applications.series import simulate
from tunbridge.diagnostics import ess_bulk
from tunbridge.inference.standardised import fit_standardised

FOLDER = Path(os.environ.get("TUNBRIDGE_DATA", "."))
SIGMA = 0.3


def keep(section, row, found):
    put("shallow", section, row, found, "shallow.py")
    print(section, row, {name: value for name, value in found.items() if np.ndim(value) == 0}, flush=True)


# Speed


def problem(num):
    """Rows of a smooth function of two inputs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num, 2))
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 0] * x[:, 1] + SIGMA * rng.normal(size=num), rng.normal(size=(25, 2))


def peer(x, y, units):
    """The same model for numpyro: all weights standard normal."""
    wide = jnp.concatenate([jnp.ones((len(x), 1)), x], axis=1)
    hidden = numpyro.sample("hidden", dist.Normal(0.0, 1.0).expand((wide.shape[1], units)).to_event(2))
    output = numpyro.sample("output", dist.Normal(0.0, 1.0).expand((units,)).to_event(1))
    linear = numpyro.sample("linear", dist.Normal(0.0, 1.0).expand((wide.shape[1],)).to_event(1))
    f = numpyro.deterministic("f", wide @ linear + jnp.tanh(wide @ hidden) @ output)
    if y is not None:
        numpyro.sample("y", dist.Normal(f, SIGMA), obs=y)


def by_numpyro(run, x, y, inputs, units, key):
    sampler = MCMC(NUTS(peer), num_warmup=run.warmup, num_samples=run.draws, num_chains=run.chains, progress_bar=False)
    sampler.run(key, jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), units)
    draws = sampler.get_samples(group_by_chain=True)
    wide = jnp.concatenate([jnp.ones((len(inputs), 1)), inputs], axis=1)
    hidden = jnp.tanh(jnp.einsum("nd,csdu->csnu", wide, draws["hidden"]))
    return np.asarray(jnp.einsum("csnu,csu->csn", hidden, draws["output"]) + draws["linear"] @ wide.T)


def by_ours(method, x, y, inputs, units, key):
    model = tb.Model(tb.networks.Shallow(units), tb.priors.Exchangeable(), tb.likelihoods.Gaussian(SIGMA))
    posterior = method.fit(model, (x, y), key=key, progress=False)
    return np.asarray(posterior.functions(inputs))[..., 0]


def speed():
    long = tb.Run(2, 4000, 1000, 20)
    for num in (100, 1000):
        for units in (5, 20):
            x, y, inputs = problem(num)
            few = tb.Run(2, 100, 100) if num > 100 else tb.Run(2, 500, 500)
            given = (x, y, inputs, units)
            ways = {
                "GibbsMetropolis": partial(by_ours, tb.GibbsMetropolis(run=long), *given),
                "not integrated": partial(by_ours, tb.GibbsMetropolis(integrated=False, run=long), *given),
                "NUTS": partial(by_ours, tb.NUTS(run=few), *given),
                "numpyro's NUTS": partial(by_numpyro, few, *given),
            }
            found = {}
            for name, way in ways.items():
                way(jax.random.key(0))
                began = time.process_time()
                functions = way(jax.random.key(1))
                seconds = time.process_time() - began
                ess = np.asarray(ess_bulk(functions))
                found[name] = {
                    "ess": float(np.median(ess)),
                    "seconds": seconds,
                    "ess a second": float(np.median(ess)) / seconds,
                    "mean": functions.mean(axis=(0, 1)).tolist(),
                }
                print(num, units, name, f"{seconds:.1f} s, {found[name]['ess a second']:.1f} per s", flush=True)
            keep("speed", f"{num} rows, {units} units", found)


# Series


def nar(num=300):
    """An exponential autoregression of order two (Haggan and Ozaki 1981), with noise 0.3."""
    rng, y = np.random.default_rng(3), [0.0, 0.0]
    for _ in range(num + 50):
        near = np.exp(-(y[-1] ** 2))
        y.append((0.5 + 0.9 * near) * y[-1] - (0.8 + 1.8 * near) * y[-2] + 0.3 * rng.normal())
    return np.array(y[52:])


def column(name):
    lines = (FOLDER / "series" / name).read_text().splitlines()[1:]
    return np.array([float(line.split(",")[-1]) for line in lines if line.strip()])


SERIES = {
    "lynx": (lambda: np.log10(column("Lynx.csv")), 2),
    "sunspots": (lambda: np.sqrt(column("sunspots.csv")), 9),
    "simulated": (nar, 2),
}


def numbers(likely=8):
    prior = tb.priors.Exchangeable(
        output_variance=dist.InverseGamma(3.0, 2.0),
        hidden_precision=dist.Gamma(2.0, 2.0),
        linear_variance=dist.InverseGamma(3.0, 2.0),
        alpha=dist.Beta(2.0, 2.0),
    )
    return tb.Model(tb.networks.Shallow(likely), prior, tb.likelihoods.Gaussian(tb.priors.RootInverseGamma(2.0, 0.1)))


def series():
    for name, (load, lags) in SERIES.items():
        values = load()
        rows = tb.datasets.lagged(values, lags)
        x, y = np.asarray(rows.x), np.asarray(rows.y)[:, 0]
        cut = int(0.75 * len(y))
        posterior = fit_standardised(
            tb.ReversibleJump(), numbers(), x[:cut], y[:cut], key=jax.random.key(0), progress=False
        )
        predictive = posterior.predict(x[cut:])
        low, high = (np.asarray(end)[:, 0] for end in predictive.interval(0.9))
        error = np.asarray(predictive.mean)[:, 0] - y[cut:]
        wide = np.concatenate([np.ones((len(x), 1)), x], axis=1)
        line = np.linalg.lstsq(wide[:cut], y[:cut], rcond=None)[0]
        steps = min(30, len(y) - cut)
        paths = simulate(posterior, values[: cut + lags], steps, key=jax.random.key(1))
        fan = np.quantile(paths, [0.05, 0.5, 0.95], axis=0)
        seen = y[cut : cut + steps]
        keep(
            "series",
            name,
            {
                "rows": cut,
                "tested": len(y) - cut,
                "RMSE": float(np.sqrt(np.mean(error**2))),
                "RMSE of a linear autoregression": float(np.sqrt(np.mean((wide[cut:] @ line - y[cut:]) ** 2))),
                "coverage": float(np.mean((low <= y[cut:]) & (y[cut:] <= high))),
                "coverage of paths": float(np.mean((fan[0] <= seen) & (seen <= fan[2]))),
                "units": [row["posterior"] for row in tb.bench.num_units(posterior).rows],
                "before": values[max(0, cut + lags - 60) : cut + lags].tolist(),
                "after": seen.tolist(),
                "fan": fan.tolist(),
            },
        )


# Inputs that are not needed


def inputs(simulations=50):
    model = tb.Model(
        tb.networks.Shallow(3), tb.priors.Exchangeable(), tb.likelihoods.Gaussian(tb.priors.RootInverseGamma(2.0, 0.1))
    )
    needed, empty, began = [], [], time.process_time()
    for number in range(simulations):
        rng = np.random.default_rng(number)
        x = rng.normal(size=(60, 2))
        y = np.sin(2 * x[:, 0]) + SIGMA * rng.normal(size=60)
        found = tb.bench.drop_inputs(
            model, (x, y), key=jax.random.key(number), names=["needed", "null"], method=tb.TemperedSMC(particles=1000)
        )
        factors = {row["input"]: row["log Bayes factor"] for row in found.rows}
        needed.append(factors["needed"])
        empty.append(factors["null"])
        print(number, factors, flush=True)
    keep(
        "inputs",
        "null",
        {
            "simulations": simulations,
            "null favoured": float(np.mean(np.array(empty) < 0.0)),
            "needed favoured": float(np.mean(np.array(needed) > 0.0)),
            "log Bayes factors of the null": empty,
            "log Bayes factors of the needed": needed,
            "seconds": time.process_time() - began,
        },
    )


# Linear coefficients beside a network for the rest


def coverage(simulations=100):
    prior = tb.priors.Exchangeable(output_variance=dist.InverseGamma(3.0, 2.0), alpha=0.5)
    model = tb.Model(
        tb.networks.Shallow(6, nonlinear=(1,)), prior, tb.likelihoods.Gaussian(tb.priors.RootInverseGamma(2.0, 0.1))
    )
    method = tb.ReversibleJump(run=tb.Run(2, 500, 500, 4))
    inside, means = [], []
    for number in range(simulations):
        rng = np.random.default_rng(number)
        x = rng.normal(size=(80, 2))
        x[:, 0] += 0.5 * x[:, 1]
        y = 0.7 * x[:, 0] + np.sin(2 * x[:, 1]) + SIGMA * rng.normal(size=80)
        posterior = method.fit(model, (x, y), key=jax.random.key(number), progress=False)
        effect = tb.bench.partial_effects(posterior, x).draws[:, 0]
        low, high = np.quantile(effect, [0.025, 0.975])
        inside.append(bool(low <= 0.7 <= high))
        means.append(float(effect.mean()))
    keep(
        "coverage",
        "linear coefficient",
        {"simulations": simulations, "coverage of 95 %": float(np.mean(inside)), "bias": float(np.mean(means)) - 0.7},
    )


# Spike and slab: all models, or draws of them


def selection(rows=100):
    for num in (4, 8, 12, 14, 16, 18):
        rng = np.random.default_rng(num)
        z = rng.normal(size=(rows, num)) + 0.7 * rng.normal(size=(rows, 1))
        y = 0.5 * z[:, ::3].sum(axis=1) + rng.normal(size=rows)
        known = {"sigma": 1.0, "probability": 0.3}
        ways = {
            "enumeration": partial(tb.selection.enumerated, z, y, **known),
            "Gibbs": partial(tb.selection.sampled, z, y, **known, key=jax.random.key(0), num=5000),
        }
        found, results = {}, {}
        for name, way in ways.items():
            way()
            began = time.process_time()
            results[name] = way()
            found[f"seconds of {name}"] = time.process_time() - began
        off = np.abs(results["Gibbs"].inclusion - results["enumeration"].inclusion).max()
        exact, drawn = (results[name].inclusion.tolist() for name in ways)
        keep("selection", str(num), found | {"difference of inclusion": float(off), "exact": exact, "drawn": drawn})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"speed": speed, "series": series, "inputs": inputs, "coverage": coverage, "selection": selection}
    parser.add_argument("parts", nargs="*", default=list(parts), help="which parts to measure")
    warnings.simplefilter("ignore", tb.ConvergenceWarning)
    for part in parser.parse_args().parts:
        parts[part]()
