"""Shallow networks: speed beside NUTS, series, inputs, linear coefficients, which columns matter, and six priors.

    [TUNBRIDGE_DATA=FOLDER] python benchmarks/shallow.py [PART ...]    (--help names the parts)
    -> benchmarks/results/shallow.json, one row at a time

`speed` needs numpyro, which Tunbridge installs: the effective sample size of the function at 25 inputs, for each CPU
second of a second fit with the compilation taken off: numpyro compiles again for every run. All methods sample the same
posterior of a fixed number of units, with known noise. `series` and `priors` need the folder series/ in FOLDER,
`boston` the folder uci/.
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
from tunbridge.diagnostics import ess_bulk, rhat
from tunbridge.inference.standardised import fit_standardised
from tunbridge.model import transforms

FOLDER = Path(os.environ.get("TUNBRIDGE_DATA", "."))
SIGMA = 0.3


def keep(section, row, found):
    put("shallow", section, row, found, "shallow.py")
    print(section, row, {name: value for name, value in found.items() if np.isscalar(value)}, flush=True)


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


class Compiling:
    """Seconds that compiling takes in this process, all told."""

    def __init__(self):
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self.add)

    def add(self, event, seconds, **_):
        if event.endswith(("backend_compile_duration", "jaxpr_trace_duration", "jaxpr_to_mlir_module_duration")):
            self.seconds += seconds


def speed():
    long, few, compiling = tb.Run(2, 2000, 4000, 5), tb.Run(2, 500, 500), Compiling()
    for num in (100, 1000):
        for units in (5, 20):
            x, y, inputs = problem(num)
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
                began, before = time.process_time(), compiling.seconds
                functions = way(jax.random.key(1))
                spent, compiled = time.process_time() - began, compiling.seconds - before
                ess, seconds = float(np.median(ess_bulk(functions))), spent - compiled
                found[name] = {
                    "ess": ess,
                    "seconds": seconds,
                    "seconds of compiling": compiled,
                    "ess a second": ess / seconds,
                    "R-hat": float(rhat(functions).max()),
                    "mean": functions.mean(axis=(0, 1)).tolist(),
                }
                print(num, units, name, f"{seconds:.1f} s, {ess / seconds:.1f} per s", flush=True)
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


def numbers(most=8):
    prior = tb.priors.Exchangeable(
        output_variance=dist.InverseGamma(3.0, 2.0),
        hidden_precision=dist.Gamma(2.0, 2.0),
        linear_variance=dist.InverseGamma(3.0, 2.0),
        alpha=dist.Beta(2.0, 2.0),
    )
    return tb.Model(tb.networks.Shallow(most), prior, tb.likelihoods.Gaussian(tb.priors.RootInverseGamma(2.0, 0.1)))


def series():
    for name, (load, lags) in SERIES.items():
        values = load()
        rows = tb.datasets.lagged(values, lags)
        x, y = np.asarray(rows.x), np.asarray(rows.y)[:, 0]
        cut = int(0.75 * len(y))
        posterior = fit_standardised(
            tb.ReversibleJump(), numbers(15), x[:cut], y[:cut], key=jax.random.key(0), progress=False
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
                "R-hat": worst_rhat(posterior, x[cut:]),
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


def worst_rhat(posterior, x):
    """The largest R-hat of the function at inputs in the data's units."""
    return float(rhat(np.asarray(posterior.posterior.functions(posterior.scaling.inputs(x)))[..., 0]).max())


BOSTON = ("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT")


def boston():
    """Housing in Boston: numbers of units, average partial effects, and whether each input is needed."""
    with np.load(FOLDER / "uci" / "boston.npz") as file:
        x, y = file["x"], file["y"].reshape(-1)
    posterior = fit_standardised(tb.ReversibleJump(), numbers(), x, y, key=jax.random.key(0), progress=False)
    effects = tb.bench.partial_effects(posterior, x, names=BOSTON)
    noise = tb.likelihoods.Gaussian(tb.priors.RootInverseGamma(2.0, 0.1))
    model, method = tb.Model(tb.networks.Shallow(3), tb.priors.Exchangeable(), noise), tb.TemperedSMC(particles=1000)
    dropped = tb.bench.drop_inputs(model, (x, y), key=jax.random.key(1), names=BOSTON, method=method, repeats=2)
    keep(
        "boston",
        "report",
        {
            "units": [row["posterior"] for row in tb.bench.num_units(posterior).rows],
            "R-hat": worst_rhat(posterior, x[::5]),
            "effects": effects.rows,
            "inputs": dropped.rows,
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


# What the prior changes


def six(inputs, units=3):
    """Six priors of one network of one hidden layer, by those who proposed them: model and method.

    Inputs and y are standardised. All noise is unknown. Of Lee's three the joint Jeffreys prior has the noise to the
    power of the number of weights as well.
    """
    weights, network = units * (inputs + 1) + units + 1, tb.networks.MLP((units,))
    free, nuts = dist.LogUniform(1e-3, 10.0), tb.NUTS(max_depth=6, run=tb.Run(4, 300, 300))
    weak = tb.priors.RootInverseGamma(0.5, 0.05)
    groups = {path: tb.priors.Normal(weak) for path in ("layers/0/weight", "layers/0/bias", "layers/1/weight")}
    hyper = tb.priors.ByPath(groups, default=tb.priors.Normal(1.0))
    mueller = tb.priors.Exchangeable(
        output_variance=dist.InverseGamma(2.0, 1.0), hidden_precision=dist.Gamma(2.0, 2.0), linear_variance=1.0
    )

    def model(prior, noise, network=network):
        return tb.Model(network, prior, tb.likelihoods.Gaussian(noise))

    return {
        "flat": (model(tb.priors.Flat(), free), nuts),
        "Jeffreys, joint": (model(tb.priors.Jeffreys(), tb.priors.RootInverseGamma(weights / 2, 0.01)), nuts),
        "Jeffreys, independent": (model(tb.priors.Jeffreys(), free), nuts),
        "Müller and Rios Insua": (
            model(mueller, tb.priors.RootInverseGamma(2.0, 0.1), tb.networks.Shallow(units, linear=False)),
            tb.GibbsMetropolis(),
        ),
        "Neal": (model(hyper, weak), nuts),
        "MacKay": (model(hyper, weak), tb.Laplace()),
    }


def small_tables():
    """Three real tables of few inputs, so that the information of few weights is needed: two series, and diabetes."""
    for name in ("lynx", "sunspots"):
        rows = tb.datasets.lagged(SERIES[name][0](), 2)
        yield name, np.asarray(rows.x), np.asarray(rows.y)[:, 0]
    rows = tb.datasets.diabetes()
    yield "diabetes", np.asarray(rows.x)[:, [0, 2, 3, 8]], np.asarray(rows.y)[:, 0]


def start(posterior, model):
    """Weights and noise of one draw, the noise in the coordinates of another model's prior of it."""
    drawn = jax.tree.map(lambda leaf: leaf[0], posterior.sample(jax.random.key(0), 1))
    sigma = posterior.model.likelihood.sigma(drawn.noise)
    return tb.Params(drawn.weights, (), transforms.real(model.likelihood.numbers, sigma))


def priors(splits=3, most=200):
    """Scores on held-out quarters of three tables, trained on at most so many rows.

    Chains under Jeffreys priors start from a draw of the flat prior's posterior.
    """
    for name, x, y in small_tables():
        flat = []
        for prior, (model, method) in six(x.shape[1]).items():
            found, began = [], time.process_time()
            for number in range(splits):
                order = np.random.default_rng(number).permutation(len(y))
                test, train = order[: len(y) // 4], order[len(y) // 4 :][:most]
                posterior = fit_standardised(
                    method,
                    model,
                    x[train],
                    y[train],
                    key=jax.random.key(number),
                    progress=False,
                    init=start(flat[number], model) if prior.startswith("Jeffreys") else None,
                )
                if prior == "flat":
                    flat.append(posterior.posterior)
                predictive = posterior.predict(x[test])
                low, high = (np.asarray(end)[:, 0] for end in predictive.interval(0.9))
                off, inside = np.asarray(predictive.mean)[:, 0] - y[test], (low <= y[test]) & (y[test] <= high)
                log_probs = predictive.log_prob(y[test])
                mixed = np.nan
                if isinstance(posterior.posterior, tb.Chains):
                    mixed = worst_rhat(posterior, x[test])
                scores = np.sqrt(np.mean(off**2)), -np.mean(log_probs), np.mean(inside), np.mean(high - low)
                found.append((*scores, mixed))
            names = "RMSE", "NLL", "coverage", "width", "R-hat"
            measures = dict(zip(names, np.mean(found, axis=0).tolist(), strict=True))
            keep("priors", f"{name}, {prior}", measures | {"seconds": (time.process_time() - began) / splits})


def curves():
    """Forty points of a curve with a gap: the mean and 90 % of the functions under each prior."""
    data = tb.datasets.curve(jax.random.key(0))
    x, y, at = np.asarray(data.x), np.asarray(data.y)[:, 0], np.linspace(-3.0, 3.0, 120)[:, None]
    for prior, (model, method) in six(1).items():
        posterior = fit_standardised(method, model, x, y, key=jax.random.key(0), progress=False)
        functions = np.asarray(posterior.predict(at).functions)[..., 0]
        low, high = np.quantile(functions, [0.05, 0.95], axis=0)
        found = {"x": at[:, 0], "mean": functions.mean(axis=0), "low": low, "high": high}
        keep("curves", prior, {name: values.tolist() for name, values in found.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {part.__name__: part for part in (speed, series, inputs, boston, coverage, selection, priors, curves)}
    parser.add_argument("parts", nargs="*", default=list(parts), help="which parts to measure")
    warnings.simplefilter("ignore", tb.ConvergenceWarning)
    for part in parser.parse_args().parts:
        parts[part]()
