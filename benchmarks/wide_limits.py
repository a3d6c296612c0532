"""Wide-network limits of priors over weights, compared with theory.

python benchmarks/wide_limits.py [PART ...] -> benchmarks/results/wide_limits.json, minutes on two cores.
"""

import json
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from record import RESULTS, record
from scipy import stats

import tunbridge as tb

X = np.array([[1.0, 0.0, -0.5], [0.8, 0.4, -0.5], [-1.0, 0.5, 1.0], [0.1, -1.5, 0.7]])
"""Four inputs at which functions are compared."""
SCALE, DRAWS = 1.4, 4000
NOISE = 0.1


def network(hidden: tuple[int, ...], activation: str = "relu", scale: float = SCALE) -> tb.Model:
    prior = tb.priors.Normal(tb.priors.fan_in(scale))
    return tb.Model(tb.networks.MLP(hidden, activation, outputs=1), prior, tb.likelihoods.Gaussian(NOISE))


def functions(model: tb.Model, x: np.ndarray, key, num: int) -> np.ndarray:
    """Outputs of networks drawn from the prior, (num, points)."""
    model, data = model.bind(tb.Data(x, np.zeros(len(x))))

    def draw(one):
        return model.outputs(model.sample_params(one, model.example()), data.x)[:, 0]

    return np.asarray(jax.jit(partial(jax.lax.map, draw, batch_size=50))(jax.random.split(key, num)))


def kernels(model: tb.Model, x: np.ndarray, key, num: int) -> np.ndarray:
    """Covariance of the outputs under random last-layer weights, given all others, (num, points, points)."""
    model, data = model.bind(tb.Data(x, np.zeros(len(x))))
    width, scale = model.network.hidden[-1], model.prior.scale.scale
    features = {"weight": jnp.eye(width), "bias": jnp.zeros(width)}

    def draw(one):
        layers = model.sample_params(one, model.example()).weights["layers"]
        phi = model.network.apply({"layers": [*layers[:-1], features]}, data.x)
        return scale**2 * (1 + phi @ phi.T / width)

    found = jax.jit(partial(jax.lax.map, draw, batch_size=10))(jax.random.split(key, num))
    return np.asarray(found, np.float64)


def matrix(kernel: tb.bench.WideKernel, x: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(kernel)(x, x))


def normals(covariance: np.ndarray, key, num: int) -> np.ndarray:
    jitter = 1e-9 * np.trace(covariance) * np.eye(len(covariance))
    standard = np.asarray(jax.random.normal(key, (num, len(covariance))), np.float64)
    return standard @ np.linalg.cholesky(covariance + jitter).T


def covariances(key) -> list[dict]:
    """Relative error of a random kernel, and the excess kurtosis 3 var(V) / E[V]^2 of f(x) with V its variance."""
    rows = []
    for depth, width, num in (
        [(1, w, 4000) for w in (1, 10, 100, 1000)] + [(3, w, 1000) for w in (1, 10, 100)] + [(3, 1000, 60)]
    ):
        model = network((width,) * depth)
        limit = matrix(tb.bench.wide_kernel(model), X)
        found = kernels(model, X, jax.random.fold_in(key, 10_000 * depth + width), num)
        error = np.linalg.norm(found - limit, axis=(1, 2)) / np.linalg.norm(limit)
        variance = found[:, 0, 0]
        rows.append(
            {
                "depth": depth,
                "width": width,
                "draws": num,
                "relative_error": float(np.sqrt(np.mean(error**2))),
                "error_of_mean": float(np.linalg.norm(found.mean(0) - limit) / np.linalg.norm(limit)),
                "excess_kurtosis": float(3 * variance.var() / variance.mean() ** 2),
            }
        )
    return rows


def discrepancies(key) -> dict:
    """MMD^2 between networks and their limit, by depth and width."""
    widths, curves = [1, 3, 10, 30, 100], {}
    for depth in range(1, 6):
        key_depth = jax.random.fold_in(key, depth)
        model = network((1,) * depth)
        limit = normals(matrix(tb.bench.wide_kernel(model), X), key_depth, DRAWS)
        curves[str(depth)] = [
            tb.diagnostics.mmd(functions(network((w,) * depth), X, jax.random.fold_in(key_depth, w), DRAWS), limit)
            for w in widths
        ]
    covariance = matrix(tb.bench.wide_kernel(network((1,))), X)
    same = [[normals(covariance, jax.random.fold_in(key, 100 + 2 * i + j), DRAWS) for j in (0, 1)] for i in range(10)]
    floor = float(np.std([tb.diagnostics.mmd(*pair) for pair in same]))
    return {"widths": widths, "draws": DRAWS, "mmd2": curves, "sd_if_equal": floor}


def line() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 20))[:, None]
    return x, np.sin(2 * x[:, 0]) + NOISE * rng.normal(size=20), np.linspace(-2.5, 2.5, 51)[:, None]


def weighed(model: tb.Model, key, num: int) -> dict:
    """Posterior mean by importance sampling: hidden layers from the prior, weighted by p(y | hidden layer).

    Given the hidden layer everything is normal, so this is exact up to the finite number of draws.
    """
    x, y, test = line()
    found = kernels(model, np.concatenate([x, test]), key, num)
    log_weight, means = [], []
    for k in found:
        lower = np.linalg.cholesky(k[:20, :20] + NOISE**2 * np.eye(20))
        half = np.linalg.solve(lower, np.column_stack([y, k[:20, 20:]]))
        log_weight.append(-0.5 * half[:, 0] @ half[:, 0] - np.log(np.diag(lower)).sum())
        means.append(half[:, 0] @ half[:, 1:])
    weight = np.exp(np.array(log_weight) - max(log_weight))
    weight, means = weight / weight.sum(), np.array(means)
    mean = weight @ means
    error = np.sqrt(np.sum(weight[:, None] ** 2 * (means - mean) ** 2, axis=0))
    return {"mean": mean, "error": error, "ess": float(1 / np.sum(weight**2)), "draws": num}


def posterior(key) -> dict:
    x, y, test = line()
    model = network((1000,), "erf", 2.0)
    process = tb.bench.ExactProcess(tb.bench.wide_kernel(model), NOISE, tune=False).fit(x, y, key=key)
    exact = process.predict(test)
    truth, sd = exact.mean[:, 0], np.sqrt(exact.epistemic[:, 0])
    signal = float(truth.std())

    def against(mean, error):
        rmse, error = (float(np.sqrt(np.mean(e**2)) / signal) for e in (mean - truth, error))
        return {"rmse_share_of_signal": rmse, "monte_carlo_error_share": error}

    rows = {}
    for width in (10, 100, 1000):
        found = weighed(network((width,), "erf", 2.0), jax.random.fold_in(key, width), 2000 if width < 1000 else 1000)
        rows[f"weighed, {width} units"] = {
            **against(found["mean"], found["error"]),
            "ess": found["ess"],
            "draws": found["draws"],
        }
    run = tb.Run(chains=4, warmup=1500, draws=2000, thin=5)
    began = time.perf_counter()
    chains = tb.MCLMC(energy_variance=1e-4, run=run).fit(model, tb.Data(x, y), key=key, progress=False)
    seconds = time.perf_counter() - began
    f = np.asarray(chains.functions(test), np.float64).reshape(4, 2000, -1)
    mean, spread = f.mean((0, 1)), f.std((0, 1))
    rows["mclmc, 1000 units"] = {
        **against(mean, tb.diagnostics.mcse(f)),
        "rhat_max": float(np.max(tb.diagnostics.rhat(f))),
        "ess_min": float(np.min(tb.diagnostics.ess_bulk(f))),
        "draws": 8000,
        "thin": 5,
        "sd_ratio_median": float(np.median(spread / sd)),
        "sd_ratio_max": float(np.max(spread / sd)),
        "seconds": seconds,
    }
    curves = {"x": test[:, 0], "process_mean": truth, "process_sd": sd, "mclmc_mean": mean, "mclmc_sd": spread}
    data = {"data_x": x[:, 0], "data_y": y}
    return {"rows": rows, "signal_sd": signal, **{k: v.round(4).tolist() for k, v in (curves | data).items()}}


FAMILIES = {"normal": 2.0, "student t, df 3": 2.0, "cauchy": 1.0}
"""Distributions of output weights, with the alpha of their scale H^(-1/alpha)."""
LAWS = {"normal": tb.priors.Normal(1.0), "student t, df 3": tb.priors.StudentT(3.0), "cauchy": tb.priors.Cauchy(1.0)}


def output_weights(key, family: str, width: int):
    like, layout = {"w": jax.ShapeDtypeStruct((width,), float)}, {"w": tb.networks.Leaf("weight", (0,))}
    standard, _ = LAWS[family].sample(key, like, layout)
    return standard["w"] * width ** (-1 / FAMILIES[family])


def heavy(key, num: int = 50_000) -> list[dict]:
    """Statistics of f(x) for networks of sign units: the largest unit's share, quantile ratios, the tail index."""

    def draw(family, width, one):
        key_hidden, key_last = jax.random.split(one)
        v = output_weights(key_last, family, width) * jax.random.rademacher(key_hidden, (width,), float)
        return jnp.sum(v), jnp.max(v**2) / jnp.sum(v**2)

    rows = []
    for family in FAMILIES:
        for width in (1, 10, 100, 1000):
            keys = jax.random.split(jax.random.fold_in(key, width), num)
            f, share = jax.jit(partial(jax.lax.map, partial(draw, family, width), batch_size=500))(keys)
            size = np.abs(np.asarray(f, np.float64))
            alpha, error = tb.diagnostics.hill(size, 0.01)
            rows.append(
                {
                    "family": family,
                    "width": width,
                    "largest_share": float(np.mean(share)),
                    "quantile_ratio": float(np.quantile(size, 0.998) / np.quantile(size, 0.5)),
                    "hill": alpha,
                    "hill_error": error,
                }
            )
    return rows


def theory() -> dict:
    laws = {"normal": stats.norm, "student t, df 3": stats.t(3), "cauchy": stats.cauchy}
    return {name: float(law.ppf(0.999) / law.ppf(0.75)) for name, law in laws.items()}


def bottleneck(width: int, narrow: int) -> tb.Model:
    """Networks with two wide relu layers joined by `narrow` linear units."""
    names, axes = ("in", "join", "out", "last"), tb.networks.Leaf("weight", (0,), (1,))

    def init(_, x):
        sizes = (x.shape[1], width, narrow, width, 1)
        return {
            n: {"weight": jnp.zeros((a, b)), "bias": jnp.zeros(b)}
            for n, a, b in zip(names, sizes, sizes[1:], strict=False)
        }

    def apply(weights, x):
        z = x
        for name, phi in zip(names, (jax.nn.relu, lambda a: a) * 2, strict=True):
            z = phi(z @ weights[name]["weight"] + weights[name]["bias"][None])
        return z

    layer = {"weight": axes, "bias": tb.networks.Leaf("bias", outputs=(0,))}
    net = tb.networks.from_functions(init, apply, {name: layer for name in names})
    return tb.Model(net, tb.priors.Normal(tb.priors.fan_in(SCALE)), tb.likelihoods.Gaussian(NOISE))


LAYER = tb.bench.WideKernel(("relu",), (SCALE**2,) * 2, (SCALE**2,) * 2)
JOINED = tb.bench.WideKernel(("relu", "identity", "relu"), (SCALE**2,) * 4, (SCALE**2,) * 4)


def deep_process(narrow: int, key, num: int) -> np.ndarray:
    """Draws of a deep Gaussian process: a process with `narrow` outputs, followed by a process on these."""
    key_inner, key_outer = jax.random.split(key)
    inner = normals(matrix(LAYER, X), key_inner, num * narrow).reshape(num, narrow, len(X)).transpose(0, 2, 1)
    with jax.enable_x64(True):
        outer = np.asarray(jax.jit(jax.vmap(lambda z: LAYER(z, z)))(inner))
    lower = np.linalg.cholesky(outer + 1e-9 * np.eye(len(X)))
    standard = np.asarray(jax.random.normal(key_outer, (num, len(X))), np.float64)
    return np.einsum("nij,nj->ni", lower, standard)


def bottlenecks(key) -> dict:
    widths, narrows = [1, 3, 10, 30, 100], [1, 2, 4, 8, 16]
    to_deep = {}
    for narrow in (1, 3):
        deep = deep_process(narrow, jax.random.fold_in(key, narrow), DRAWS)
        to_deep[str(narrow)] = [
            tb.diagnostics.mmd(
                functions(bottleneck(w, narrow), X, jax.random.fold_in(key, 100 * w + narrow), DRAWS), deep
            )
            for w in widths
        ]
    limit = normals(matrix(JOINED, X), jax.random.fold_in(key, 7), DRAWS)
    network_rows = [functions(bottleneck(100, k), X, jax.random.fold_in(key, 10_000 + k), DRAWS) for k in narrows]
    deep_rows = [deep_process(k, jax.random.fold_in(key, 20_000 + k), DRAWS) for k in narrows]
    return {
        "widths": widths,
        "mmd2_network_to_deep_process": to_deep,
        "bottlenecks": narrows,
        "mmd2_network_of_100_to_process": [tb.diagnostics.mmd(f, limit) for f in network_rows],
        "mmd2_deep_process_to_process": [tb.diagnostics.mmd(f, limit) for f in deep_rows],
        "covariance_error": [
            float(np.linalg.norm(f.T @ f / DRAWS - matrix(JOINED, X)) / np.linalg.norm(matrix(JOINED, X)))
            for f in network_rows
        ],
    }


PARTS = {
    "covariances": covariances,
    "discrepancies": discrepancies,
    "posterior": posterior,
    "heavy": heavy,
    "bottlenecks": bottlenecks,
}


def main(names: list[str]) -> None:
    path = RESULTS / "wide_limits.json"
    figures = json.loads(path.read_text()) if path.exists() else {}
    figures |= {"quantile_ratio_of_law": theory(), "seconds": figures.get("seconds", {})}
    for key, (name, part) in zip(jax.random.split(jax.random.key(0), len(PARTS)), PARTS.items(), strict=True):
        if not names or name in names:
            began = time.perf_counter()
            figures[name] = part(key)
            figures["seconds"][name] = round(time.perf_counter() - began)
            figures.pop("machine", None)
            record("wide_limits", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
