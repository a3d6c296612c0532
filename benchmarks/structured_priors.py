"""Priors for parts of a network: filters of a convolution, gates of an LSTM.

python benchmarks/structured_priors.py -> benchmarks/results/structured_priors.json
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from record import record

import tunbridge as tb
from tunbridge.model.priors import ByPath, FilterGroups, Gates, Normal, fan_in

FILTERS, SIDE, WINDOW = 8, 8, 5
USED = 2
METHOD = tb.MCLMC(run=tb.Run(chains=4, warmup=5000, draws=300, thin=10))


class Convolution(eqx.Module):
    """A convolution, rectified and summed over the image, then a weighted sum."""

    filters: eqx.nn.Conv2d
    head: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.filters = eqx.nn.Conv2d(1, FILTERS, WINDOW, use_bias=False, key=first)
        self.head = eqx.nn.Linear(FILTERS, 1, key=second)

    def __call__(self, image):
        seen = jax.nn.relu(self.filters(image[None]))
        return self.head(jnp.sum(seen, axis=(1, 2)) / (SIDE - WINDOW + 1))


def planted():
    """The two filters that made the data, (2, window, window): a spot and an edge."""
    up, along = np.meshgrid(*(np.linspace(-1.0, 1.0, WINDOW),) * 2, indexing="ij")
    hill = np.exp(-(up**2 + along**2))
    both = np.stack([hill - hill.mean(), along * hill])
    return both / np.linalg.norm(both, axis=(1, 2), keepdims=True)


def images(key, num):
    """White-noise images, with the weighted responses of the planted filters plus noise of scale 0.1 as targets."""
    key_x, key_noise = jax.random.split(key)
    x = jax.random.normal(key_x, (num, SIDE, SIDE))
    kernels = jnp.asarray(planted(), x.dtype)[:, None]
    seen = jax.nn.relu(jax.lax.conv(x[:, None], kernels, (1, 1), "VALID"))
    features = jnp.sum(seen, axis=(2, 3)) / (SIDE - WINDOW + 1)
    y = features @ jnp.array([1.0, -1.0]) + 0.1 * jax.random.normal(key_noise, (num,))
    return tb.Data(x, y)


def filters():
    """Posterior size of each filter, and pictures of the used ones, with and without smoothness."""
    train, test = images(jax.random.key(0), 150), images(jax.random.key(1), 500)
    network = tb.networks.from_equinox(Convolution(jax.random.key(2)))
    rest = ByPath({"head/weight": Normal(1.0)}, default=Normal(1.0))
    priors = {
        "one scale": Normal(fan_in(dist.HalfCauchy(1.0))),
        "one scale a filter": FilterGroups(dist.HalfCauchy(0.3), rest=rest),
        "one scale a filter, smooth": FilterGroups(dist.HalfCauchy(0.3), length=1.0, rest=rest),
    }
    rows, pictures = [], {"planted": planted().tolist()}
    for name, prior in priors.items():
        model = tb.Model(network, prior, tb.likelihoods.Gaussian(dist.HalfNormal(1.0)))
        began = time.perf_counter()
        posterior = METHOD.fit(model, train, key=jax.random.key(3))
        seconds = time.perf_counter() - began
        order, effects = reading(posterior)
        sizes = np.linalg.norm(effects, axis=(3, 4))
        row = {"prior": name, "size": np.median(sizes, axis=(0, 1)).tolist()}
        if isinstance(prior, FilterGroups):
            row["scale"] = tau(posterior, order)
        row |= {"error": error(effects), **scores(posterior, test), "seconds": seconds, "doubts": posterior.doubts()}
        rows.append(row)
        pictures[name] = effects[0, :, :USED].mean(axis=0).tolist()
        print(rows[-1], flush=True)
    return {"train": 150, "filters": FILTERS, "planted": USED, "rows": rows, "pictures": pictures}


def reading(posterior):
    """The order of filters by size in each chain, and the filters times their weights in the head, in that order.

    Shapes are (chains, filters) and (chains, draws, filters, window, window). Filters may be permuted between chains,
    so they are sorted within each.
    """
    weights = jax.vmap(jax.vmap(posterior.model.weights))(posterior.params)
    kernels = np.asarray(weights.filters.weight)[:, :, :, 0]
    effects = kernels * np.asarray(weights.head.weight)[:, :, 0, :, None, None]
    order = np.argsort(-np.median(np.linalg.norm(effects, axis=(3, 4)), axis=1), axis=1)
    return order, np.stack([chain[:, places] for chain, places in zip(effects, order, strict=True)])


def tau(posterior, order):
    """Posterior median scale of each filter, in the given order."""
    values = jax.vmap(jax.vmap(posterior.model.prior.values))(posterior.params.scales)["filters"]["filter"][0]
    chains = np.asarray(values).reshape(*values.shape[:2], FILTERS)
    return np.median([chain[:, places] for chain, places in zip(chains, order, strict=True)], axis=(0, 1)).tolist()


def error(effects):
    """Relative error of the mean of the two largest filters from the planted ones, in the worst chain."""
    truth = planted() * np.array([1.0, -1.0])[:, None, None]
    found = effects[:, :, :USED].mean(axis=1)
    apart = [np.sqrt(np.sum((found - way[None]) ** 2, axis=(1, 2, 3))) for way in (truth, truth[::-1])]
    return float(np.max(np.min(apart, axis=0)) / np.linalg.norm(truth))


class Recurrent(eqx.Module):
    """An LSTM that reads a sequence, and a weighted sum of its last state."""

    cell: eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __init__(self, inputs, units, key):
        first, second = jax.random.split(key)
        self.cell = eqx.nn.LSTMCell(inputs, units, key=first)
        self.head = eqx.nn.Linear(units, 1, key=second)

    def __call__(self, sequence):
        nothing = jnp.zeros(self.cell.hidden_size, sequence.dtype)
        (last, _), _ = jax.lax.scan(lambda state, x: (self.cell(x, state), None), (nothing, nothing), sequence)
        return self.head(last)


def sequences(key, num, length=8):
    """Pairs of a number and a mark; y is the number at the last mark, with noise of scale 0.1."""
    key_x, key_mark, key_noise = jax.random.split(key, 3)
    values = jax.random.normal(key_x, (num, length))
    marks = jax.random.bernoulli(key_mark, 0.3, (num, length)).at[:, 0].set(True)
    last = length - 1 - jnp.argmax(marks[:, ::-1], axis=1)
    y = jnp.take_along_axis(values, last[:, None], axis=1)[:, 0] + 0.1 * jax.random.normal(key_noise, (num,))
    return tb.Data(jnp.stack([values, marks.astype(values.dtype)], axis=-1), y)


def gates():
    """Scores of an LSTM by prior, and the scale of each gate where it is unknown."""
    train, test = sequences(jax.random.key(0), 200), sequences(jax.random.key(1), 1000)
    network = tb.networks.from_equinox(Recurrent(2, 6, jax.random.key(2)))
    unknown = fan_in(dist.HalfNormal(3.0))
    by_gate = Gates(unknown, unknown, unknown, unknown)
    priors = {
        "Normal, fan-in": Normal(fan_in(1.0)),
        "Normal, unknown scale": Normal(unknown),
        "a scale a gate": ByPath({"cell/*": by_gate}, default=Normal(1.0)),
    }
    rows, scales = [], []
    for name, prior in priors.items():
        model = tb.Model(network, prior, tb.likelihoods.Gaussian(dist.HalfNormal(1.0)))
        for label, method in {
            "MAP": tb.MAP(),
            "MCLMC": METHOD,
        }.items():
            began = time.perf_counter()
            posterior = method.fit(model, train, key=jax.random.key(3))
            seconds = time.perf_counter() - began
            rows.append({"prior": name, "method": label, **scores(posterior, test), "seconds": seconds})
            print(rows[-1], flush=True)
    values = jax.vmap(posterior.model.prior.values)(posterior.components(posterior.key, None).scales)["cell/*"]
    for gate, drawn in values.items():
        low, middle, high = np.quantile(np.asarray(drawn), [0.05, 0.5, 0.95])
        scales.append({"gate": gate, "5 %": float(low), "50 %": float(middle), "95 %": float(high)})
    return {"train": 200, "units": 6, "rows": rows, "scales": scales, "doubts": posterior.doubts()}


def scores(posterior, test):
    """RMSE, NLL and 90 % coverage on test rows."""
    predictive = posterior.predict(test.x)
    return {
        "RMSE": float(tb.metrics.rmse(predictive, test.y)),
        "NLL": float(-tb.metrics.log_score(predictive, test.y)),
        "90 % coverage": float(tb.metrics.coverage(predictive, test.y)),
    }


if __name__ == "__main__":
    record("structured_priors", {"filters": filters(), "gates": gates()})
