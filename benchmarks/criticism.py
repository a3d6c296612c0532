"""What variational inference misses, compared with NUTS, Laplace, ensembles, dropout and exact posteriors.

TUNBRIDGE_DATA=FOLDER python benchmarks/criticism.py [linear] [gap] [tables] [concentration] [gradients]

-> benchmarks/results/criticism.json, one section a word; without words all. Minutes each on two cores.
"""

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from real_sets import load
from record import RESULTS, record

import tunbridge as tb
from tunbridge.datasets import Scaling

KEY = jax.random.key(0)
LONG = tb.Train(6000)
DRAWS = 2000
"""Number of draws of q from which correlations and standard deviations are estimated."""
TABLES = ("energy", "concrete", "kin8nm")
"""Tables of eight columns each."""
ROWS, TEST = 100, 200
SIZES = (1, 2, 5, 10, 20, 50, 100)
COUNTS = (10, 100, 1000, 10_000)


def families() -> dict[str, Any]:
    """Variational methods with their defaults, in order of how many weights q may correlate."""
    return {
        "mean field": tb.MeanField(),
        "matrix normal": tb.MatrixNormalVI(),
        "low rank": tb.LowRank(),
        "layers": tb.ADVI(tb.families.Layers()),
        "full rank": tb.FullRank(),
    }


def nuts(warmup: int = 500, draws: int = 500) -> tb.NUTS:
    return tb.NUTS(run=tb.Run(chains=4, warmup=warmup, draws=draws))


def functions(posterior: Any, x: np.ndarray) -> np.ndarray:
    """Draws of f at x, (draws, points)."""
    if isinstance(posterior, tb.Chains):
        return np.asarray(posterior.functions(x)).reshape(-1, len(x))
    params = posterior.sample(jax.random.key(7), DRAWS)
    return np.asarray(jax.vmap(lambda one: posterior.model.outputs(one, jnp.asarray(x)))(params))[..., 0]


def apart(found: np.ndarray, truth: np.ndarray) -> float:
    """Root mean square difference of two correlation matrices, off the diagonal."""
    off = ~np.eye(len(truth), dtype=bool)
    return float(np.sqrt(np.mean((found - truth)[off] ** 2)))


def against(found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Correlations and standard deviations of functions (draws, points) compared with those of a reference."""
    ratios = found.std(0) / truth.std(0)
    return {
        "correlation_error": apart(np.corrcoef(found.T), np.corrcoef(truth.T)),
        "sd_ratio": float(np.exp(np.mean(np.log(ratios)))),
        "sd_ratio_least": float(ratios.min()),
        "mean_error_in_sd": float(np.sqrt(np.mean(((found.mean(0) - truth.mean(0)) / truth.std(0)) ** 2))),
    }


def mixed(posterior: tb.Chains, x: np.ndarray) -> dict[str, float]:
    """Checks of a run as a reference: R-hat of f, and its two halves compared with each other."""
    values = np.asarray(posterior.functions(x)).reshape(*posterior.shape, len(x))
    halves = [values[:, half].reshape(-1, len(x)) for half in (slice(0, None, 2), slice(1, None, 2))]
    pairs = [values[pair].reshape(-1, len(x)) for pair in (slice(0, 2), slice(2, 4))]
    return {
        "rhat_largest": float(np.max(tb.diagnostics.rhat(values))),
        "ess_least": float(np.min(tb.diagnostics.ess_bulk(values))),
        "correlation_error_of_other_draws": against(*halves)["correlation_error"],
        "correlation_error_of_other_chains": against(*pairs)["correlation_error"],
    }


def fit(method: Any, model: tb.Model, data: tb.Data) -> Any:
    return method.fit(model, data, key=KEY, progress=False)


def described(posterior: Any, data: tb.Data) -> dict[str, float]:
    if not isinstance(posterior, tb.VariationalGaussian):
        return {}
    bound = posterior.elbo(data, num=DRAWS)
    return {"elbo": bound.value, "elbo_error": bound.error, "parameters": posterior.num_parameters}


def line() -> tb.networks.MLP:
    """A linear model: weights and a bias, no hidden layer."""
    return tb.networks.MLP((), outputs=1)


def exact_line(data: tb.Data, noise: float, scale: float) -> np.ndarray:
    """The covariance of (weights, bias)."""
    rows = np.column_stack([np.asarray(data.x, float), np.ones(data.num)])
    return np.linalg.inv(rows.T @ rows / noise**2 + np.eye(rows.shape[1]) / scale**2)


def linear() -> dict[str, Any]:
    """Five correlated inputs, noise 0.5, prior scale 1, 50 rows: the posterior is normal and known."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(50, 1))
    x = 0.9 * common + 0.45 * rng.normal(size=(50, 5))
    data = tb.Data(x, x @ np.array([1.0, -0.5, 0.3, 0.8, 0.0]) + 0.5 * rng.normal(size=50))
    model = tb.Model(line(), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
    covariance = exact_line(data, 0.5, 1.0)[:5, :5]
    sds = np.sqrt(np.diag(covariance))
    truth = covariance / np.outer(sds, sds)
    found = {}
    for name, method in families().items():
        posterior = fit(method, model, data)
        params = posterior.sample(jax.random.key(7), 20_000)
        (weights,) = (leaf for leaf in jax.tree.leaves(params.weights) if leaf.size == 5 * 20_000)
        drawn = np.asarray(weights).reshape(-1, 5)
        found[name] = {
            "correlation_error": apart(np.corrcoef(drawn.T), truth),
            "sd_ratio": float(np.exp(np.mean(np.log(drawn.std(0) / sds)))),
            **described(posterior, data),
        }
        print(name, found[name], flush=True)
    precision = np.linalg.inv(exact_line(data, 0.5, 1.0))
    expected = np.exp(np.mean(np.log(np.diag(precision)[:5] ** -0.5 / sds)))
    off = ~np.eye(5, dtype=bool)
    return {"true_correlation": float(np.sqrt(np.mean(truth[off] ** 2))), "sd_ratio_expected": float(expected), **found}


def gap_problem() -> tuple[tb.Model, tb.Data]:
    """Forty points of a curve with none in (-0.7, 0.3) and none beyond 2; 20 tanh units."""
    prior = tb.priors.Normal((2.0, tb.priors.fan_in(2.0)))
    model = tb.Model(tb.networks.MLP((20,)), prior, tb.likelihoods.Gaussian(0.1))
    return model, tb.datasets.curve(jax.random.key(1), 40)


def everyone() -> dict[str, Any]:
    return {
        "NUTS": nuts(500, 500),
        **families(),
        "Bayes by Backprop": tb.BayesByBackprop(num_samples=1, point=None),
        "IVON": tb.IVON(),
        "Laplace": tb.Laplace(),
        "ensemble": tb.Ensemble(tb.MAP(), 10),
        "dropout": tb.MCDropout(train=tb.Train(5000)),
    }


def gap() -> dict[str, Any]:
    """Standard deviations of f and interquartile ranges of y: among the data, in the gap, and beyond the data."""
    model, data = gap_problem()
    inside = np.concatenate([np.linspace(-1.9, -0.8, 20), np.linspace(0.4, 1.9, 20)])[:, None]
    places = {"inside": inside, "gap": np.linspace(-0.5, 0.1, 20)[:, None]}
    places["beyond"] = np.concatenate([np.linspace(-4, -2.5, 10), np.linspace(2.5, 4, 10)])[:, None]
    few = np.array([-1.6, -1.0, -0.4, 0.0, 0.6, 1.2, 1.8])[:, None]
    found: dict[str, Any] = {}
    reference: dict[str, np.ndarray] = {}
    drawn = None
    for name, method in everyone().items():
        posterior = fit(method, model, data)
        row: dict[str, Any] = described(posterior, data)
        for place, x in places.items():
            predictive = posterior.predict(x)
            sd = np.sqrt(np.asarray(predictive.epistemic)[:, 0])
            lower, upper = (np.asarray(edge)[:, 0] for edge in predictive.interval(0.5))
            row[f"sd_{place}"], row[f"iqr_{place}"] = float(np.median(sd)), float(np.median(upper - lower))
            reference.setdefault(place, sd)
            row[f"sd_ratio_{place}"] = float(np.exp(np.mean(np.log(sd / reference[place]))))
        row["curve"] = curve(posterior)
        row["iqr_gap_over_inside"] = row["iqr_gap"] / row["iqr_inside"]
        row["iqr_beyond_over_inside"] = row["iqr_beyond"] / row["iqr_inside"]
        if not isinstance(posterior, tb.Linearised):
            values = functions(posterior, few)
            drawn = values if drawn is None else drawn
            row["functions"] = against(values, drawn)
        if isinstance(posterior, tb.Chains):
            row["mixing"] = mixed(posterior, few)
        found[name] = row
        print(name, {part: value for part, value in row.items() if part != "curve"}, flush=True)
    return found


def curve(posterior: Any) -> dict[str, list[float]]:
    """The mean and the central 90 % of y from -3 to 3, for a picture."""
    x = np.linspace(-3, 3, 121)
    predictive = posterior.predict(x[:, None])
    lower, upper = predictive.interval(0.9)
    parts = {"x": x, "mean": predictive.mean, "lower": lower, "upper": upper}
    return {part: np.ravel(values).round(4).tolist() for part, values in parts.items()}


def tables() -> dict[str, Any]:
    """Three real tables with 100 rows, 10 tanh units: functions compared with NUTS, and NLL by number of draws."""
    found: dict[str, Any] = {}
    for table in TABLES:
        task = load(table, 0)
        picked = np.random.default_rng(0).permutation(len(task.train[0]))[:ROWS]
        rows = task.train[0][picked], task.train[1][picked]
        scaling = Scaling.of(*rows)
        data = tb.Data(scaling.inputs(rows[0]), scaling.targets(rows[1]))
        test = tb.Data(scaling.inputs(task.test[0][:TEST]), scaling.targets(task.test[1][:TEST]))
        model = tb.Model(tb.networks.MLP((10,)), tb.priors.Normal(tb.priors.fan_in(1.0)), tb.likelihoods.Gaussian(0.3))
        few = np.asarray(test.x[:30])
        reference = fit(nuts(), model, data)
        truth = functions(reference, few)
        nll = -tb.metrics.log_score(reference.predict(test.x), test.y)
        found[table] = {"NUTS": {"nll": nll, **mixed(reference, few)}}
        for name, method in families().items():
            posterior = fit(method, model, data)
            row = {**against(functions(posterior, few), truth), **described(posterior, data)}
            row["nll"] = -tb.metrics.log_score(posterior.predict(test.x), test.y)
            if name == "mean field":
                row["weights"] = posterior.num_parameters // 2
                row["nll_by_draws"] = by_draws(posterior, test)
            found[table][name] = row
        print(table, found[table], flush=True)
    return {"draws": SIZES, **found}


def by_draws(posterior: Any, test: tb.Data) -> list[dict[str, float]]:
    """NLL of averages over S draws: mean and standard deviation over 20 sets of draws."""
    rows = []
    for size in SIZES:
        keys = jax.random.split(jax.random.key(5), 20)
        scores = [-tb.metrics.log_score(posterior.predict(test.x, key=one, num=size), test.y) for one in keys]
        rows.append({"mean": float(np.mean(scores)), "sd": float(np.std(scores, ddof=1))})
    return rows


def first(x: np.ndarray, y: np.ndarray, num: int, name: str) -> tb.Data:
    """Data with weight 1 for the first rows and 0 for the others, so that one program serves all sizes.

    IVON, which forgets its initial state slowly, gets only the first rows: its initialisation ignores weights.
    """
    if name == "IVON":
        return tb.Data(x[:num], y[:num])
    return tb.Data(x, y, (np.arange(len(x)) < num).astype(float))


def concentration() -> dict[str, Any]:
    """Standard deviation of f by number of rows, and its log-log slope."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (max(COUNTS), 1))
    grid = np.linspace(-1.8, 1.8, 30)[:, None]
    noise = 0.3 * rng.normal(size=len(x))
    found: dict[str, Any] = {"counts": COUNTS}
    targets = {"linear": x[:, 0] - 0.5 + noise, "tanh": np.sin(2 * x[:, 0]) + noise}
    for case, y in targets.items():
        net = line() if case == "linear" else tb.networks.MLP((10,), outputs=1)
        model = tb.Model(net, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3))
        rows = {name: [] for name in concentrating(case)}
        if case == "linear":
            rows["exact"] = [exact_sd(x[:num], y[:num], grid) for num in COUNTS]
        for name, method in concentrating(case).items():
            for num in COUNTS:
                posterior = fit(method, model, first(x, y, num, name))
                rows[name].append(float(np.mean(np.sqrt(posterior.predict(grid).epistemic))))
            print(case, name, rows[name], flush=True)
        found[case] = {name: {"sd": sds, **slopes_of(sds)} for name, sds in rows.items()}
    return found


def concentrating(case: str) -> dict[str, Any]:
    train = tb.Train(1500)
    dropout = {"input_rate": 0.1} if case == "linear" else {}
    found = {
        "mean field": tb.MeanField(train=train),
        "IVON": tb.IVON(train=train),
        "Laplace": tb.Laplace(point=tb.MAP(train=train)),
        "dropout": tb.MCDropout(rate=0.1, train=train, **dropout),
    }
    return found | ({} if case == "linear" else {"ensemble": tb.Ensemble(tb.MAP(train=train), 5)})


def exact_sd(x: np.ndarray, y: np.ndarray, grid: np.ndarray) -> float:
    rows = np.column_stack([grid, np.ones(len(grid))])
    variances = np.einsum("ij,jk,ik->i", rows, exact_line(tb.Data(x, y), 0.3, 1.0), rows)
    return float(np.mean(np.sqrt(variances)))


def slopes_of(sds: list[float]) -> dict[str, float]:
    """Log-log slopes over all sizes, and over the last two."""
    logs = np.log(COUNTS), np.log(np.maximum(sds, 1e-12))
    return {
        "slope": float(np.polyfit(*logs, 1)[0]),
        "last_slope": float(np.diff(logs[1])[-1] / np.diff(logs[0])[-1]),
    }


ESTIMATORS = {
    "reparameterised": {"gradient": tb.gradients.Reparameterised()},
    "local": {"gradient": tb.gradients.LocalReparameterised()},
    "flipout": {"gradient": tb.gradients.Flipout()},
    "reparameterised, sampled KL": {
        "gradient": tb.gradients.Reparameterised(),
        "divergence": tb.divergences.KL(closed=False),
    },
    "sticking the landing": {
        "gradient": tb.gradients.StickTheLanding(),
        "divergence": tb.divergences.KL(closed=False),
    },
    "score function": {"gradient": tb.gradients.ScoreFunction()},
}


def gradients() -> dict[str, Any]:
    """Variance of a 10-draw gradient estimate, averaged over the parameters of q, at both ends of a fit."""
    model, data = gap_problem()
    bound, rows = model.bind(data)
    target = tb.Target(bound, float(rows.num))
    short = tb.MeanField(train=tb.Train(1), step_size=1e-9)
    ends = {"start": short, "optimum": tb.MeanField(train=LONG)}
    found: dict[str, Any] = {"draws_each": 10}
    for end, method in ends.items():
        q = fit(method, model, data).q
        found[end] = {name: variance(options, target, q, rows) for name, options in ESTIMATORS.items()}
        base = found[end]["reparameterised"]
        for name, row in found[end].items():
            row["over_reparameterised"] = row["mean"] / base["mean"]
            print(end, name, row, flush=True)
    return found


@jax.jit
def estimates(method: Any, target: tb.Target, q: Any, rows: tb.Data, keys: Any) -> Any:
    return jax.lax.map(lambda key: method.loss_and_gradient(key, target, q, rows, jnp.ones(()))[1], keys)


def variance(options: dict[str, Any], target: tb.Target, q: Any, rows: tb.Data, num: int = 1000) -> dict[str, float]:
    method = tb.MeanField(num_samples=10, **options).bind(target.model)

    drawn = jax.tree.leaves(estimates(method, target, q, rows, jax.random.split(jax.random.key(3), num)))
    flat = np.concatenate([np.asarray(leaf).reshape(num, -1) for leaf in drawn], axis=1)
    half = flat.shape[1] // 2
    each = flat.var(0, ddof=1)
    return {"mean": float(each.mean()), "of_means": float(each[:half].mean()), "of_rhos": float(each[half:].mean())}


SECTIONS = {"linear": linear, "gap": gap, "tables": tables, "concentration": concentration, "gradients": gradients}


if __name__ == "__main__":
    for word in sys.argv[1:] or SECTIONS:
        section = SECTIONS[word]()
        path = RESULTS / "criticism.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        before.pop("machine", None)
        record("criticism", {**before, word: section}, show=False)
