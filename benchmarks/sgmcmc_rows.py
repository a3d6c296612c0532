"""Stochastic-gradient MCMC on rows of data: what subsampling gets wrong, and what puts it right.

TUNBRIDGE_DATA=FOLDER python benchmarks/sgmcmc_rows.py [--quick] [batches] [network] [metropolis] [logistic] [mnist]
[mnist_cv]

-> sections of benchmarks/results/sgmcmc.json, one a word; without words all. Minutes each on two cores.
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
from real_sets import load
from scipy.special import expit
from sgmcmc import KEY, drawn, few, main, run

import tunbridge as tb
from tunbridge.datasets import Scaling

MEASURED = {"noise_estimate": None}
CORRECTED = {"correction": tb.corrections.Metropolis(10)}


def linear(features: int) -> Any:
    """A network x @ w, without bias."""
    return tb.networks.from_functions(
        lambda *_: {"w": jnp.zeros(features)}, lambda weights, x: (x @ weights["w"])[:, None]
    )


def whitened(values: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Draws (chains, draws, d) in coordinates in which the truth is N(0, 1)."""
    return (values - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T


def second_moment(z: np.ndarray) -> dict[str, float]:
    """The mean of z^2, and its Monte Carlo error over chains and coordinates."""
    each = (z**2).mean(1)
    return {"ratio": float(each.mean()), "error": float(each.std(ddof=1) / np.sqrt(each.size))}


SIZES = (10, 100, 1000)
ROWS, COLUMNS, NOISE = 1000, 5, 0.5
STEP, FRICTION = 1e-6, 0.1
LEAPFROGS = 25


def line() -> tuple[tb.Model, tb.Data, np.ndarray, np.ndarray]:
    """Linear regression with known noise, and the mean and covariance of its posterior."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS))
    y = x @ rng.normal(size=COLUMNS) + NOISE * rng.normal(size=ROWS)
    covariance = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(COLUMNS))
    model = tb.Model(linear(COLUMNS), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(NOISE))
    return model, tb.Data(x, y), covariance @ (x.T @ y) / NOISE**2, covariance


def naive(data: tb.Data, mean: np.ndarray, size: int, judge: bool, chains: int = 100, paths: int = 300) -> np.ndarray:
    """HMC whose leapfrog steps see a batch each; with `judge` another decides on a path, else it is taken."""
    x, y, epsilon = data.x, data.y[:, 0], STEP**0.5

    def some(key: Any) -> tuple[Any, Any]:
        rows = jnp.arange(ROWS) if size == ROWS else jax.random.randint(key, (size,), 0, ROWS)
        return x[rows], y[rows]

    def potential(w: Any, rows: Any) -> Any:
        return ROWS / size * jnp.sum((rows[1] - rows[0] @ w) ** 2) / (2 * NOISE**2) + 0.5 * jnp.sum(w**2)

    slope = jax.grad(potential)

    def path(w: Any, key: Any) -> tuple[Any, Any]:
        key_p, key_path, key_energy, key_accept = jax.random.split(key, 4)
        p = jax.random.normal(key_p, w.shape)
        keys = jax.random.split(key_path, LEAPFROGS + 1)

        def leap(i: Any, state: Any) -> Any:
            w, p = state
            w = w + epsilon * p
            return w, p - epsilon * jnp.where(i == LEAPFROGS, 0.5, 1.0) * slope(w, some(keys[i]))

        moved, q = jax.lax.fori_loop(1, LEAPFROGS + 1, leap, (w, p - 0.5 * epsilon * slope(w, some(keys[0]))))
        if judge:
            rows = some(key_energy)
            gain = potential(w, rows) - potential(moved, rows) + 0.5 * (p @ p - q @ q)
            moved = jnp.where(jnp.log(jax.random.uniform(key_accept)) < gain, moved, w)
        return moved, moved

    def chain(key: Any) -> Any:
        return jax.lax.scan(path, jnp.asarray(mean, jnp.float32), jax.random.split(key, few(paths)))[1]

    draws = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(KEY, chains)), float)
    return draws[:, draws.shape[1] // 10 :]


def batches() -> dict[str, Any]:
    """Linear regression of 1,000 rows: the posterior variance found over the exact one, against rows a step."""
    model, data, mean, covariance = line()
    start = tb.Params({"w": jnp.asarray(mean, jnp.float32)})
    fixed = {"friction": FRICTION, "step_size": STEP}
    methods: dict[str, tuple[Any, dict[str, Any]]] = {
        "SGHMC": (tb.SGHMC, fixed),
        "SGHMC, noise measured": (tb.SGHMC, fixed | MEASURED),
        "SGHMC, default step": (tb.SGHMC, {}),
        "SGNHT": (tb.SGNHT, fixed),
        "SGNHT, default step": (tb.SGNHT, {}),
        "SGHMC, control variates": (tb.SGHMC, fixed | {"gradient": tb.subsampling.ControlVariate()}),
        "SGHMC, SVRG": (tb.SGHMC, fixed | {"gradient": tb.subsampling.SVRG(every=100)}),
        "SGHMC, Metropolis(10)": (tb.SGHMC, fixed | CORRECTED),
    }
    found: dict[str, Any] = {"sizes": SIZES, "step": STEP, "friction": FRICTION, "samplers": {}}
    for name, judge in (("naive HMC", False), ("naive HMC, batch decides", True)):
        rows = [second_moment(whitened(naive(data, mean, size, judge), mean, covariance)) for size in SIZES]
        found["samplers"][name] = rows
        print(name, rows, flush=True)
    for name, (kind, options) in methods.items():
        found["samplers"][name] = []
        for size in SIZES:
            how = run(2000, 2 if "correction" in options else 10, 2000, chains=8, batch_size=size)
            values, posterior = drawn(kind(run=how, **options), (model, data), init=start)
            row: dict[str, Any] = second_moment(whitened(values, mean, covariance))
            if "correction" in options:
                row["acceptance"] = float(np.mean(posterior.stats["acceptance"]))
            found["samplers"][name].append({**row, "note": posterior.notes[0]})
        print(name, [(r["ratio"], r["error"], r.get("acceptance")) for r in found["samplers"][name]], flush=True)
    return found


NETWORK_SIZES = (16, 128)
POINTS = 40


def table() -> tuple[tb.Model, tb.Data, np.ndarray]:
    """Boston housing, standardised, 13-50-1 tanh, known noise; and test inputs."""
    task = load("boston", 0)
    scaling = Scaling.of(*task.train)
    data = tb.Data(scaling.inputs(task.train[0]), scaling.targets(task.train[1]))
    model = tb.Model(tb.networks.MLP((50,)), tb.priors.Normal(tb.priors.fan_in(1.0)), tb.likelihoods.Gaussian(0.3))
    return model, data, np.asarray(scaling.inputs(task.test[0]))[:POINTS]


def functions(method: Any, problem: tuple[tb.Model, tb.Data], x: np.ndarray, **options: Any) -> tuple[np.ndarray, Any]:
    """f at x, (chains, draws, points), and the posterior."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.ConvergenceWarning)
        posterior = method.fit(*problem, key=KEY, progress=False, **options)
        return np.asarray(posterior.functions(x))[..., 0], posterior


def against(values: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """f (chains, draws, points): deviations over those of the reference, and differences in Monte Carlo errors."""
    flat, reference = values.reshape(-1, POINTS), truth.reshape(-1, POINTS)
    ratios, centre = flat.std(0) / reference.std(0), reference.mean(0)

    def apart(part: Any) -> np.ndarray:
        a, b = part(values), part(truth)
        error = np.hypot(tb.diagnostics.mcse(a), tb.diagnostics.mcse(b))
        return (a.mean((0, 1)) - b.mean((0, 1))) / error

    means, squares = apart(lambda f: f), apart(lambda f: (f - centre) ** 2)
    return {
        "sd_ratio": float(np.exp(np.mean(np.log(ratios)))),
        "mean_error_in_sd": float(np.sqrt(np.mean(((flat.mean(0) - centre) / reference.std(0)) ** 2))),
        "mean_beyond_3_errors": float(np.mean(np.abs(means) > 3)),
        "square_beyond_3_errors": float(np.mean(np.abs(squares) > 3)),
        "square_rms_in_errors": float(np.sqrt(np.mean(squares**2))),
        "rhat": float(np.median(tb.diagnostics.rhat(values))),
        "ess": float(np.median(tb.diagnostics.ess_bulk(values))),
    }


def network() -> dict[str, Any]:
    """A network of 751 weights: standard deviations of f over those of NUTS, against rows a step."""
    model, data, x = table()
    problem = model, data
    truth, reference = functions(tb.NUTS(run=run(400, warmup=400)), problem, x)
    found: dict[str, Any] = {"sizes": NETWORK_SIZES, "NUTS": against(truth, truth), "samplers": {}}
    print("NUTS", found["NUTS"], flush=True)
    step = {"step_size": 2e-6, "friction": 0.1}
    methods: dict[str, tuple[Any, dict[str, Any]]] = {
        "SGHMC, one step": (tb.SGHMC, step),
        "SGHMC, one step, noise measured": (tb.SGHMC, step | MEASURED),
        "SGHMC, default step": (tb.SGHMC, {}),
        "SGNHT, default step": (tb.SGNHT, {}),
        "SGHMC, one step, SVRG": (tb.SGHMC, step | {"gradient": tb.subsampling.SVRG()}),
        "SGHMC, one step, Metropolis(10)": (tb.SGHMC, step | CORRECTED),
    }
    for name, (kind, options) in methods.items():
        found["samplers"][name] = []
        for size in NETWORK_SIZES:
            how = run(400, 5 if "correction" in options else 50, 400, batch_size=size)
            if "step_size" not in options:
                how = run(400, 50, 4000, batch_size=size)
            values, posterior = functions(kind(run=how, **options), problem, x, init=reference)
            row: dict[str, Any] = against(values, truth)
            if "correction" in options:
                row["acceptance"] = float(np.mean(posterior.stats["acceptance"]))
            found["samplers"][name].append({**row, "note": posterior.notes[0]})
            print(name, size, found["samplers"][name][-1], flush=True)
    return found


MANY, FEATURES, PRIOR = 100_000, 10, 10.0
ONE_PERCENT = MANY // 100


@cache
def classes() -> dict[str, Any]:
    """Logistic regression: rows, mode, covariance, and moments by importance draws from the normal at the mode."""
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
    z = rng.normal(size=(few(4000), FEATURES))
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
    # the covariance at the mode has no Monte Carlo error and differs by less than that of the importance draws
    off = float(np.abs(np.linalg.eigvals(np.linalg.solve(covariance, exact)) - 1).max())
    return {
        "x": x, "y": y, "problem": (model, tb.Data(x, y)), "start": start, "mean": mean, "covariance": covariance,
        "said": {"importance_ess": float(effective), "draws": len(z), "covariance_from_normal": off},
    }  # fmt: skip


def metropolis() -> dict[str, Any]:
    """Logistic regression of 100,000 rows: exact, approximate and no Metropolis steps; bias and the data they see."""
    known = classes()
    rows = 4 * ONE_PERCENT
    exact, minibatch = tb.corrections.Metropolis, tb.corrections.MinibatchMetropolis
    methods: dict[str, tuple[Any, int, int]] = {
        "SGLD, all rows decide": (tb.SGLD(4e-6, correction=exact(1)), 1500, 1),
        "SGHMC, all rows decide after 10": (tb.SGHMC(4e-6, friction=0.1, correction=exact(10)), 1000, 1),
        **{
            f"SGLD, {num:,} rows decide": (tb.SGLD(4e-6, correction=minibatch(num)), 1500, 1)
            for num in (100, 1000, 10_000, 100_000)
        },
        **{f"SGLD {step:g}": (tb.SGLD(step), 4000, 5) for step in (1e-7, 4e-7, 1.6e-6)},
        "SGLD 1.6e-06, control variates": (tb.SGLD(1.6e-6, gradient=tb.subsampling.ControlVariate()), 4000, 5),
    }
    found: dict[str, Any] = {"reference": known["said"], "rows": MANY, "samplers": {}}
    for name, (method, draws, thin) in methods.items():
        size = rows if method.correction is not None else ONE_PERCENT
        how = run(draws, thin, 300, batch_size=size)
        values, posterior = drawn(dataclasses.replace(method, run=how), known["problem"], init=known["start"])
        found["samplers"][name] = judged(values, posterior, size, known)
        print(name, found["samplers"][name], flush=True)
    return found


def judged(values: np.ndarray, posterior: Any, size: int, known: dict[str, Any]) -> dict[str, Any]:
    z = whitened(values, known["mean"], known["covariance"])
    moment = second_moment(z)
    return {
        "sd_ratio": moment["ratio"] ** 0.5,
        "error": 0.5 * moment["error"] / moment["ratio"] ** 0.5,
        "mean_error_in_sd": float(np.sqrt(np.mean(z.mean((0, 1)) ** 2))),
        "acceptance": float(np.mean(posterior.stats["acceptance"])) if "acceptance" in posterior.stats else None,
        "data_a_step": float(np.mean(posterior.stats["gradients"])),
        "ess": float(np.min(tb.diagnostics.ess_bulk(values))),
        "batch_size": size,
    }


GRID = {
    "SGLD": (1e-7, 4e-7, 1.6e-6, 6.4e-6),
    "SGHMC": (1e-8, 1e-7, 1e-6, 1e-5),
    "SGNHT": (1e-8, 1e-7, 1e-6, 1e-5),
}
ITERATIONS = 10_000


def discrepancies(values: np.ndarray, known: dict[str, Any]) -> dict[str, float]:
    """log10 of the Stein discrepancy of 500 draws, as published and in units of posterior standard deviations."""
    flat = values.reshape(-1, FEATURES)
    some = flat[np.linspace(0, len(flat) - 1, 500).astype(int)]
    scores = -some / PRIOR**2
    for begin in range(0, MANY, 10_000):
        rows = slice(begin, begin + 10_000)
        x = known["x"][rows]
        scores = scores + (known["y"][rows][:, None] - expit(x @ some.T)).T @ x
    sd = np.sqrt(np.diag(known["covariance"]))
    with np.errstate(invalid="ignore"):
        return {
            "log10_ksd": float(np.log10(tb.diagnostics.stein_discrepancy(some, scores))),
            "log10_ksd_in_sd": float(np.log10(tb.diagnostics.stein_discrepancy(some / sd, scores * sd))),
        }


def logistic() -> dict[str, Any]:
    """Six samplers, four steps each and the default: Stein discrepancy, least ESS and bias."""
    known = classes()
    found: dict[str, Any] = {"reference": known["said"], "iterations": ITERATIONS, "chains": 2, "samplers": {}}
    for name, steps in GRID.items():
        kind = getattr(tb, name)
        for label, gradient in (("", tb.subsampling.Plain()), ("CV", tb.subsampling.ControlVariate())):
            rows = []
            for step in (*steps, None):
                how = run(ITERATIONS // 10, 10, 1000 if step else 4000, chains=2, batch_size=ONE_PERCENT)
                try:
                    values, posterior = drawn(
                        kind(step, gradient=gradient, run=how), known["problem"], init=known["start"]
                    )
                except tb.NumericalError as error:
                    rows.append({"step": step, "failed": str(error)[:100]})
                    continue
                row = {**judged(values, posterior, ONE_PERCENT, known), **discrepancies(values, known)}
                rows.append({"step": step, **row, "note": posterior.notes[0]})
                print(name + label, rows[-1], flush=True)
            found["samplers"][name + label] = rows
    return found


HIDDEN, IMAGES = 100, 20_000
DIGIT_STEPS = {"SGLD": 5e-5, "SGHMC": 4e-6, "SGNHT": 7e-6}
"""As published; that of SGLD is halved, as the published rule moves by half the step times the gradient."""
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
    """Of the networks one by one, and of their average from the first draw on."""
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
    """Test log-loss against steps: three samplers from small weights, or control variates from a mode."""
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


SECTIONS = {
    "batches": batches,
    "network": network,
    "metropolis": metropolis,
    "logistic": logistic,
    "mnist": mnist,
    "mnist_cv": mnist_cv,
}


if __name__ == "__main__":
    main(SECTIONS, "sgmcmc_rows.py")
