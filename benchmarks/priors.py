"""Priors: the cost of log densities, recovery by sparse priors, and the effect of the scale.

python benchmarks/priors.py speed      -> benchmarks/results/prior_speed.json
python benchmarks/priors.py sparsity   -> benchmarks/results/prior_sparsity.json
python benchmarks/priors.py scale      -> benchmarks/results/prior_scale.json
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from record import record

import tunbridge as tb
from tunbridge.model.priors import (
    ARD,
    ByPath,
    Cauchy,
    GroupHorseshoe,
    Hierarchical,
    Horseshoe,
    Laplace,
    Logistic,
    LowRankNormal,
    MatrixNormal,
    Normal,
    ScaleMixture,
    Smooth,
    SpikeAndSlab,
    StudentT,
    TwoNormals,
    fan_in,
)

SIZE = 1000
"""Side of a square matrix of weights."""
ZOO = {
    "Normal": Normal(1.0),
    "Normal, unknown scale": Normal(dist.HalfNormal(1.0)),
    "Laplace": Laplace(1.0),
    "Student-t": StudentT(3.0, 1.0),
    "Cauchy": Cauchy(1.0),
    "logistic": Logistic(1.0),
    "two normals": TwoNormals(0.5, 1.0, 0.01),
    "spike and slab": SpikeAndSlab(dist.Beta(1.0, 9.0)),
    "hierarchical, two normals": Hierarchical(TwoNormals(0.5, 1.0, 0.01), dist.HalfNormal(1.0)),
    "inverse-gamma variance": ScaleMixture(dist.InverseGamma(2.0, 2.0), squared=True),
    "horseshoe": Horseshoe(),
    "horseshoe with a slab": Horseshoe(slab=2.0),
    "group horseshoe": GroupHorseshoe(),
    "ARD": ARD(),
    "low rank (rank 5)": LowRankNormal(np.random.default_rng(0).normal(size=(SIZE * SIZE, 5)), 1.0),
    "matrix normal, smooth inputs": MatrixNormal(inputs=Smooth(3.0)),
    "by path": ByPath({"layers/0/weight": Laplace(1.0)}),
}


def speed() -> None:
    """Times of log p and its gradient on 10^6 weights, measured in turn, and their ratios to the Normal."""
    layout = {"layers": [{"weight": tb.networks.Leaf("weight", (0,), (1,))}]}
    weights = {"layers": [{"weight": jax.random.normal(jax.random.key(0), (SIZE, SIZE))}]}
    programs = {}
    for name, prior in ZOO.items():
        bound = prior.bind(weights, layout)
        raw, scales = bound.sample(jax.random.key(1), weights, layout)

        def density(raw, scales, bound=bound):
            return bound.log_prob(raw, scales, layout) + bound.log_hyper(scales)

        program = jax.jit(jax.value_and_grad(density, argnums=(0, 1)))
        jax.block_until_ready(program(raw, scales))
        programs[name] = (program, raw, scales)
    seconds = {name: [] for name in ZOO}
    for _ in range(30):
        for name, (program, *arguments) in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program(*arguments))
            seconds[name].append(time.perf_counter() - began)
    best = {name: float(np.median(taken)) for name, taken in seconds.items()}
    numbers = {name: sum(leaf.size for leaf in jax.tree.leaves(rest[1:])) for name, rest in programs.items()}
    rows = [
        {"prior": name, "ms": 1e3 * best[name], "ratio": best[name] / best["Normal"], "unknowns": numbers[name]}
        for name in ZOO
    ]
    record("prior_speed", {"rows": rows}, "priors.py speed")


def sparsity() -> None:
    """Recovery in sparse regression and with irrelevant inputs, several simulated problems each."""
    record("prior_sparsity", {"horseshoe": horseshoe(), "ard": ard(), "laplace": laplace()}, "priors.py sparsity")


def horseshoe(problems: int = 5, rows: int = 100, columns: int = 50, used: int = 5) -> dict:
    """Horseshoe on 100 rows and 50 columns, 5 of which matter: found are those whose 95 % interval excludes 0."""
    prior = ByPath({"*/bias": Normal(10.0)}, default=Horseshoe(dist.HalfCauchy(0.1), slab=dist.HalfNormal(5.0)))
    model = tb.Model(tb.networks.MLP(()), prior, tb.likelihoods.Gaussian(dist.HalfNormal(2.0)))
    found = []
    for problem in range(problems):
        rng = np.random.default_rng(problem)
        x, slopes = rng.normal(size=(rows, columns)), np.zeros(columns)
        slopes[:used] = rng.choice([-1, 1], used) * rng.uniform(1.0, 3.0, used)
        data = tb.Data(x, x @ slopes + rng.normal(size=rows))
        posterior = tb.NUTS(run=tb.Run(warmup=500, draws=500)).fit(model, data, key=jax.random.key(problem))
        drawn = jax.vmap(posterior.model.weights)(posterior.components(posterior.key, None))
        low, high = np.quantile(np.asarray(drawn["layers"][0]["weight"])[:, :, 0], [0.025, 0.975], axis=0)
        chosen = (low > 0) | (high < 0)
        found.append((int(chosen[:used].sum()), int(chosen[used:].sum())))
    right, wrong = np.sum(found, axis=0)
    return {
        "problems": problems,
        "found": found,
        "power": float(right / (used * problems)),
        "false discoveries": float(wrong / max(right + wrong, 1)),
    }


def ard(problems: int = 3) -> dict:
    """ARD on 150 rows, 3 relevant inputs and 7 of noise: posterior medians of their scales by NUTS."""
    model = tb.Model(tb.networks.MLP((8,)), ARD(dist.HalfCauchy(1.0)), tb.likelihoods.Gaussian(dist.HalfNormal(1.0)))
    medians = []
    for problem in range(problems):
        key_x, key_noise, key_fit = jax.random.split(jax.random.key(problem), 3)
        x = jax.random.normal(key_x, (150, 10))
        y = jnp.sin(1.5 * x[:, 0]) + 0.7 * x[:, 1] + jnp.tanh(2.0 * x[:, 2])
        data = tb.Data(x, y + 0.1 * jax.random.normal(key_noise, y.shape))
        posterior = tb.NUTS(run=tb.Run(warmup=500, draws=300)).fit(model, data, key=key_fit)
        values = jax.vmap(posterior.model.prior.values)(posterior.components(posterior.key, None).scales)
        medians.append(np.median(np.asarray(values["inputs"]["relevance"][0])[:, :, 0], axis=0).tolist())
    ratios = [min(row[:3]) / max(row[3:]) for row in medians]
    return {"problems": problems, "medians": medians, "least relevant over largest noise": ratios}


def laplace() -> list[dict]:
    """Exact zeros of the mode and of draws under a Laplace prior, and errors of mode and mean (D4)."""
    rows = []
    for name, likelihood in (("diabetes", tb.likelihoods.Gaussian(0.7)), ("breast_cancer", tb.likelihoods.Bernoulli())):
        train, test = tb.datasets.split(getattr(tb.datasets, name)(), jax.random.key(0))
        scaling = tb.datasets.Scaling.of(train.x, train.y if name == "diabetes" else None)
        train, test = scaling.apply(train), scaling.apply(test)
        model = tb.Model(tb.networks.MLP(()), ByPath({"*/bias": Normal(10.0)}, default=Laplace(0.05)), likelihood)
        mode = tb.MAP().fit(model, train, key=jax.random.key(0))
        posterior = tb.NUTS(run=tb.Run(warmup=500, draws=500)).fit(model, train, key=jax.random.key(0))
        at = np.asarray(mode.params.weights["layers"][0]["weight"])
        draws = np.asarray(posterior.components(posterior.key, None).weights["layers"][0]["weight"])
        scores = [-tb.metrics.log_score(one.predict(test.x), test.y) for one in (mode, posterior)]
        zeros = {"zeros of the mode": int((at == 0).sum()), "zeros of all draws": int((draws == 0).sum())}
        zeros["zeros of the mean"] = int((draws.mean(axis=0) == 0).sum())
        rows.append({"data": name, "weights": at.size, **zeros, "NLL mode": scores[0], "NLL draws": scores[1]})
    return rows


def scale() -> None:
    """How predictions change with the scale of the prior on three real data sets: an ensemble of 5."""
    found = {}
    sets = {
        "diabetes": tb.likelihoods.Gaussian(dist.HalfNormal(1.0)),
        "breast_cancer": tb.likelihoods.Bernoulli(),
        "wine": tb.likelihoods.Categorical(),
    }
    for name, likelihood in sets.items():
        train, test = tb.datasets.split(getattr(tb.datasets, name)(), jax.random.key(0))
        model = tb.Model(tb.networks.MLP((20,)), Normal(fan_in(1.0)), likelihood)
        method = tb.MCLMC(run=tb.Run(chains=4, warmup=2000, draws=200, thin=10))
        found[name] = tb.bench.sensitivity(model, train, test, method=method, key=jax.random.key(0)).rows
    record("prior_scale", {"method": "MCLMC, 4 chains, 20 tanh units", "sets": found}, "priors.py scale")


if __name__ == "__main__":
    {"speed": speed, "sparsity": sparsity, "scale": scale}[sys.argv[1]]()
