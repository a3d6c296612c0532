"""Stochastic-gradient MCMC on rows of data: biases of subsampling, and their corrections.

TUNBRIDGE_DATA=FOLDER python benchmarks/sgmcmc_rows.py [--quick] [batches] [network]

-> sections of benchmarks/results/sgmcmc.json, one per argument; without arguments all. Minutes each on two cores.
"""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from real_sets import load
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
    """HMC with one minibatch per leapfrog step; with `judge` another decides acceptance, else paths are accepted."""
    x, y, epsilon = data.x, data.y[:, 0], STEP**0.5

    def some(key: Any) -> tuple[Any, Any]:
        rows = jnp.arange(ROWS) if size == ROWS else jax.random.randint(key, (size,), 0, ROWS)
        return x[rows], y[rows]

    def potential(w: Any, rows: Any) -> Any:
        return ROWS / size * jnp.sum((rows[1] - rows[0] @ w) ** 2) / (2 * NOISE**2) + 0.5 * jnp.sum(w**2)

    gradient = jax.grad(potential)

    def path(w: Any, key: Any) -> tuple[Any, Any]:
        key_p, key_path, key_energy, key_accept = jax.random.split(key, 4)
        p = jax.random.normal(key_p, w.shape)
        keys = jax.random.split(key_path, LEAPFROGS + 1)

        def leap(i: Any, state: Any) -> Any:
            w, p = state
            w = w + epsilon * p
            return w, p - epsilon * jnp.where(i == LEAPFROGS, 0.5, 1.0) * gradient(w, some(keys[i]))

        moved, q = jax.lax.fori_loop(1, LEAPFROGS + 1, leap, (w, p - 0.5 * epsilon * gradient(w, some(keys[0]))))
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
    """Linear regression of 1,000 rows: estimated over exact posterior variance, by rows per step."""
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
    """Draws of f at x, (chains, draws, points), and the posterior."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.ConvergenceWarning)
        posterior = method.fit(*problem, key=KEY, progress=False, **options)
        return np.asarray(posterior.functions(x))[..., 0], posterior


def against(values: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Compare f (chains, draws, points) with a reference: ratios of sd, and differences in Monte Carlo errors."""
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
    """A network of 751 weights: standard deviations of f relative to NUTS, by rows per step."""
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


SECTIONS = {"batches": batches, "network": network}


if __name__ == "__main__":
    main(SECTIONS, "sgmcmc_rows.py")
