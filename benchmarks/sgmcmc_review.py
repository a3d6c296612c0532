"""The experiments of a review of stochastic-gradient MCMC, and Metropolis corrections.

TUNBRIDGE_DATA=FOLDER python benchmarks/sgmcmc_review.py [--quick] [rotated] [metropolis] [logistic] [mnist] [mnist_cv]

-> sections of benchmarks/results/sgmcmc.json, one per argument; without arguments all. Minutes each on two cores.
"""

import dataclasses
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit
from sgmcmc import KEY, PAIRS, drawn, few, main, run
from sgmcmc_rows import linear, second_moment, whitened

import tunbridge as tb
from tunbridge.bench.truth.noisy import known

ROTATED = (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
KEPT = 2500


def rotated() -> dict[str, Any]:
    """SGLD on two correlated normals, gradient noise 0.1: ESS grows with the step, Stein discrepancy has a minimum."""
    turned = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
    precision = turned @ np.diag([3.0, 1.0]) @ turned.T

    def log_density(w: Any) -> Any:
        return -0.5 * w @ jnp.asarray(precision, w.dtype) @ w

    problem = known(lambda w: jnp.sum(jax.vmap(log_density)(w.reshape(-1, 2))), 2 * PAIRS, 0.1**2, 5000)
    rows = []
    for step in ROTATED:
        draws = drawn(tb.SGLD(step / 2, run=run(10_000, batch_size=1, chains=1)), problem)[0][0]
        values = draws.reshape(-1, PAIRS, 2).swapaxes(0, 1)
        discrepancies = []
        for chain in values:
            thinned = chain[:: max(1, len(chain) // KEPT)]
            discrepancies.append(np.log10(tb.diagnostics.stein_discrepancy(thinned, -thinned @ precision)))
        ess = [float(np.min(tb.diagnostics.ess_bulk(chain[None]))) for chain in values]
        covariance = np.cov(values.reshape(-1, 2).T)
        trace = float(np.trace(covariance @ precision) / 2)
        rows.append(
            {
                "h": step,
                "log10_ksd": float(np.mean(discrepancies)),
                "log10_ksd_sd": float(np.std(discrepancies, ddof=1)),
                "ess": float(np.mean(ess)),
                "variance_ratio": trace,
            }
        )
        print(rows[-1], flush=True)
    return {"rows": rows, "iterations": few(10_000), "draws_of_ksd": KEPT}


MANY, FEATURES, PRIOR = 100_000, 10, 10.0
ONE_PERCENT = MANY // 100


@cache
def classes() -> dict[str, Any]:
    """Logistic regression: rows, mode, covariance, and moments by importance sampling from the normal at the mode."""
    rng = np.random.default_rng(0)
    apart = np.abs(np.subtract.outer(np.arange(FEATURES), np.arange(FEATURES)))
    factor = np.triu(rng.uniform(-0.4, 0.4, (FEATURES, FEATURES)))
    x = rng.multivariate_normal(np.zeros(FEATURES), (factor + factor.T - np.diag(np.diag(factor))) ** apart, MANY)
    y = (rng.uniform(size=MANY) < expit(x @ rng.normal(size=FEATURES))).astype(int)
    w = np.zeros(FEATURES)
    for _ in range(30):
        p = expit(x @ w)
        precision = (x.T * (p * (1 - p))) @ x + np.eye(FEATURES) / PRIOR**2
        w = w + np.linalg.solve(precision, x.T @ (y - p) - w / PRIOR**2)
    covariance = np.linalg.inv(precision)
    z = rng.normal(size=(few(2000), FEATURES))
    proposed = w + z @ np.linalg.cholesky(covariance).T
    logs = 0.5 * (z**2).sum(1) - 0.5 * (proposed**2).sum(1) / PRIOR**2
    for begin in range(0, MANY, 5000):
        rows = slice(begin, begin + 5000)
        logits = x[rows] @ proposed.T
        logs += (y[rows, None] * logits - np.logaddexp(0.0, logits)).sum(0)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ proposed
    centred = proposed - mean
    exact = (centred.T * weights) @ centred
    effective = 1.0 / (weights**2).sum()
    model = tb.Model(linear(FEATURES), tb.priors.Normal(PRIOR), tb.likelihoods.Bernoulli())
    start = tb.Params({"w": jnp.asarray(w, jnp.float32)})
    # the covariance at the mode has no Monte Carlo error, and differs from importance sampling by less than its error
    off = float(np.abs(np.linalg.eigvals(np.linalg.solve(covariance, exact)) - 1).max())
    return {
        "x": x, "y": y, "problem": (model, tb.Data(x, y)), "start": start, "mean": mean, "covariance": covariance,
        "said": {"importance_ess": float(effective), "draws": len(z), "covariance_from_normal": off},
    }  # fmt: skip


def metropolis() -> dict[str, Any]:
    """Logistic regression of 100,000 rows with exact, approximate and no Metropolis steps: bias, and data per step."""
    truth = classes()
    exact, minibatch = tb.corrections.Metropolis, tb.corrections.MinibatchMetropolis
    quiet = {"gradient": tb.subsampling.ControlVariate()}
    nums = (100, 1000, 10_000, 100_000)
    methods: dict[str, Any] = {
        "SGLDCV 2.5e-5, all rows decide": tb.SGLD(2.5e-5, correction=exact(1), **quiet),
        "SGHMCCV 4e-6, all rows decide after 10": tb.SGHMC(4e-6, friction=0.1, correction=exact(10), **quiet),
        **{f"SGLDCV 2.5e-5, {num:,} rows decide": tb.SGLD(2.5e-5, correction=minibatch(num), **quiet) for num in nums},
        **{f"SGLDCV {step}": tb.SGLD(float(step), **quiet) for step in ("2.5e-5", "4e-6")},
        **{f"SGLD {step}": tb.SGLD(float(step)) for step in ("4e-6", "1e-6")},
    }
    found: dict[str, Any] = {"reference": truth["said"], "rows": MANY, "samplers": {}}
    for name, method in methods.items():
        how = run(600, 1 if method.correction is not None else 10, 100, chains=2, batch_size=ONE_PERCENT)
        values, posterior = drawn(dataclasses.replace(method, run=how), truth["problem"], init=truth["start"])
        found["samplers"][name] = judged(values, posterior, truth)
        print(name, found["samplers"][name], flush=True)
    return found


def judged(values: np.ndarray, posterior: Any, truth: dict[str, Any]) -> dict[str, Any]:
    z = whitened(values, truth["mean"], truth["covariance"])
    moment = second_moment(z)
    return {
        "sd_ratio": moment["ratio"] ** 0.5,
        "error": 0.5 * moment["error"] / moment["ratio"] ** 0.5,
        "mean_error_in_sd": float(np.sqrt(np.mean(z.mean((0, 1)) ** 2))),
        "acceptance": float(np.mean(posterior.stats["acceptance"])) if "acceptance" in posterior.stats else None,
        "data_a_step": float(np.mean(posterior.stats["gradients"])),
        "ess": float(np.min(tb.diagnostics.ess_bulk(values))),
    }


GRID = {
    "SGLD": (1e-7, 4e-7, 1.6e-6),
    "SGLDCV": (1.6e-6, 6.4e-6, 2.5e-5),
    "SGHMC": (1e-8, 4e-8, 1.6e-7),
    "SGHMCCV": (1e-7, 1e-6, 5e-6),
    "SGNHT": (1e-8, 4e-8, 1.6e-7),
    "SGNHTCV": (1e-7, 1e-6, 5e-6),
}
ITERATIONS = 4000


def discrepancies(values: np.ndarray, truth: dict[str, Any]) -> dict[str, float]:
    """log10 of the Stein discrepancy of 500 draws, as published and in units of posterior standard deviations."""
    flat = values.reshape(-1, FEATURES)
    some = flat[np.linspace(0, len(flat) - 1, 500).astype(int)]
    scores = -some / PRIOR**2
    for begin in range(0, MANY, 10_000):
        rows = slice(begin, begin + 10_000)
        x = truth["x"][rows]
        scores = scores + (truth["y"][rows][:, None] - expit(x @ some.T)).T @ x
    sd = np.sqrt(np.diag(truth["covariance"]))
    with np.errstate(invalid="ignore"):
        return {
            "log10_ksd": float(np.log10(tb.diagnostics.stein_discrepancy(some, scores))),
            "log10_ksd_in_sd": float(np.log10(tb.diagnostics.stein_discrepancy(some / sd, scores * sd))),
        }


def logistic() -> dict[str, Any]:
    """Six samplers with three step sizes each and the default: Stein discrepancy, least ESS and bias."""
    truth = classes()
    found: dict[str, Any] = {"reference": truth["said"], "iterations": ITERATIONS, "samplers": {}}
    for name, steps in GRID.items():
        kind = getattr(tb, name.removesuffix("CV"))
        gradient = tb.subsampling.ControlVariate() if name.endswith("CV") else tb.subsampling.Plain()
        found["samplers"][name] = []
        for step in (*steps, None):
            how = run(ITERATIONS // 4, 4, 500 if step else 4000, chains=1, batch_size=ONE_PERCENT)
            values, posterior = drawn(kind(step, gradient=gradient, run=how), truth["problem"], init=truth["start"])
            row = {"step": step, **judged(values, posterior, truth), **discrepancies(values, truth)}
            found["samplers"][name].append({**row, "note": posterior.notes[0]})
            print(name, found["samplers"][name][-1], flush=True)
    return found


HIDDEN, IMAGES = 100, 20_000
DIGIT_STEPS = {"SGLD": 5e-5, "SGHMC": 4e-6, "SGNHT": 7e-6}
"""Published step sizes; that of SGLD is halved, as the published rule moves by half the step times the gradient."""
DIGITS_RUN = 5000


def digits() -> tuple[tb.Model, tb.Data, tb.Data]:
    """784-100-10 with a softmax over hidden units, all weights N(0, 1); 20,000 and 2,000 images."""
    file = np.load(Path(os.environ.get("TUNBRIDGE_DATA", ".")) / "mnist.npz")
    train, test = (
        tb.Data(file[f"x_{part}"][:num].reshape(-1, 784).astype(np.float32) / 255, file[f"y_{part}"][:num].astype(int))
        for part, num in (("train", IMAGES), ("test", 2000))
    )

    def init(key: Any, _: Any) -> Any:
        keys = jax.random.split(key)
        first, last = jax.random.normal(keys[0], (784, HIDDEN)), jax.random.normal(keys[1], (HIDDEN, 10))
        return {"first": 0.05 * first, "bias": jnp.zeros(HIDDEN), "last": 0.05 * last, "offset": jnp.zeros(10)}

    def apply(weights: Any, x: Any) -> Any:
        hidden = jax.nn.softmax(x @ weights["first"] + weights["bias"][None], axis=-1)
        return hidden @ weights["last"] + weights["offset"][None]

    network = tb.networks.from_functions(init, apply)
    return tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Categorical(10)), train, test


def log_losses(posterior: Any, y: np.ndarray, every: int) -> dict[str, list[float]]:
    """Log-loss of single networks, and of their running average from the first draw on."""
    logits = np.asarray(posterior.outputs, np.float64)[0]
    probs = np.exp(logits - logits.max(-1, keepdims=True))
    probs = (probs / probs.sum(-1, keepdims=True))[:, np.arange(len(y)), y]
    averaged = np.cumsum(probs, 0) / np.arange(1, len(probs) + 1)[:, None]
    return {
        "step": [every * (i + 1) for i in range(len(probs))],
        "single": [-float(np.log(np.maximum(p, 1e-30)).mean()) for p in probs],
        "averaged": [-float(np.log(np.maximum(p, 1e-30)).mean()) for p in averaged],
    }


def mnist(gradient: Any = None, label: str = "") -> dict[str, Any]:
    """Test log-loss by steps: three samplers from small weights, or control variates from a mode."""
    model, train, test = digits()
    x, y = np.asarray(test.x), np.asarray(test.y)
    steps = few(DIGITS_RUN)
    every = max(1, steps // 50)
    how = tb.Run(chains=1, warmup=0, draws=steps // every, thin=every, batch_size=train.num // 100, keep=x)
    found: dict[str, Any] = {"steps": steps, "batch_size": train.num // 100, "samplers": {}}
    options: dict[str, Any] = {}
    if gradient is not None:
        point = tb.MAP(train=tb.Train(few(1000), batch_size=train.num // 100), step_size=0.01)
        options["init"] = point.fit(model, train, key=KEY, progress=False)
        predictive = options["init"].predict(x)
        found["mode"] = -float(tb.metrics.log_score(predictive, y))
        print("mode", found["mode"], flush=True)
    for name, step in DIGIT_STEPS.items():
        method = getattr(tb, name)
        rest = {} if gradient is None else {"gradient": gradient}
        rest |= {} if name == "SGLD" else {"friction": 0.01}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tb.ConvergenceWarning)
            posterior = method(step, run=how, **rest).fit(model, train, key=KEY, progress=False, **options)
        found["samplers"][name + label] = {"step_size": step, **log_losses(posterior, y, every)}
        row = found["samplers"][name + label]
        print(name + label, row["single"][::10], row["averaged"][-1], flush=True)
    return found


def mnist_cv() -> dict[str, Any]:
    return mnist(tb.subsampling.ControlVariate(), "CV")


SECTIONS = {"rotated": rotated, "metropolis": metropolis, "logistic": logistic, "mnist": mnist, "mnist_cv": mnist_cv}


if __name__ == "__main__":
    main(SECTIONS, "sgmcmc_review.py")
