"""Dropout rate against width: test NLL and detection of unknown classes on three real data sets.

python benchmarks/dropout_study.py -> benchmarks/results/dropout_study.json
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from record import record

import tunbridge as tb

RATES, WIDTHS = (0.01, 0.05, 0.1, 0.2, 0.35, 0.5), (10, 50, 250)
WIDER = (3, 10, 50, 250)
SPLITS, STEPS, BATCH, SCALE = 3, 600, 64, 3.0
SETS = {
    "diabetes": tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)),
    "breast_cancer": tb.likelihoods.Bernoulli(),
    "digits": tb.likelihoods.Categorical(),
}
METHODS = {
    "MAP": tb.MAP(train=tb.Train(STEPS, BATCH)),
    "dropout": tb.MCDropout(rate=0.2, train=tb.Train(STEPS, BATCH)),
}


def made(width: int, likelihood) -> tb.Model:
    prior = tb.priors.Normal(tb.priors.fan_in(SCALE))
    return tb.Model(tb.networks.MLP((width, width), "relu"), prior, likelihood)


def parts(data: tb.Data, key, numbers: bool) -> tuple[tb.Data, tb.Data, tb.datasets.Scaling]:
    train, test = tb.datasets.split(data, key)
    scaling = tb.datasets.Scaling.of(train.x, train.y if numbers else None)
    return scaling.apply(train), scaling.apply(test), scaling


def rate_study(name: str, width: int, split: int) -> dict:
    """Test NLL at each rate and with learned rates, and the learned rates."""
    key = jax.random.key(split)
    train, test, _ = parts(getattr(tb.datasets, name)(), key, name == "diabetes")

    def fitted(rate, learn):
        method = tb.MCDropout(rate=rate, learn=learn, train=tb.Train(STEPS, BATCH))
        posterior = method.fit(made(width, SETS[name]), train, key=key, progress=False)
        return posterior, -tb.metrics.log_score(posterior.predict(test.x), test.y)

    learned, score = fitted(0.1, True)
    rates = [float(rate) for rate in learned.rates if rate is not None]
    return {"NLL": [fitted(rate, False)[1] for rate in RATES], "NLL_learned": score, "learned": rates}


def width_study(method: str, width: int, split: int) -> dict:
    """Train on digits 0 to 4, and measure how well uncertainty detects 5 to 9."""
    key, digits = jax.random.key(split), tb.datasets.digits()
    known = np.asarray(digits.y) < 5
    train, test, scaling = parts(tb.Data(digits.x[known], digits.y[known]), key, False)
    posterior = METHODS[method].fit(made(width, SETS["digits"]), train, key=key, progress=False)
    seen, strange = posterior.predict(test.x), posterior.predict(scaling.inputs(digits.x[~known]))
    positive = np.repeat([False, True], [test.num, int((~known).sum())])
    scores = {
        "entropy": jnp.concatenate([seen.entropy, strange.entropy]),
        "information": jnp.concatenate([seen.epistemic, strange.epistemic]),
    }
    return {
        "NLL": -tb.metrics.log_score(seen, test.y),
        "accuracy": tb.metrics.accuracy(seen, test.y),
        **{f"AUROC_{name}": tb.metrics.auroc(score, positive) for name, score in scores.items()},
    }


def over_splits(study, *case) -> dict:
    runs = [study(*case, split) for split in range(SPLITS)]
    print(*case, runs[0], flush=True)
    return {
        label: {
            "mean": np.mean([r[label] for r in runs], axis=0).tolist(),
            "sd": np.std([r[label] for r in runs], axis=0, ddof=1).tolist(),
        }
        for label in runs[0]
    }


if __name__ == "__main__":
    by_rate, by_width = {name: [] for name in SETS}, {name: [] for name in METHODS}
    for name, width in itertools.product(SETS, WIDTHS):
        by_rate[name].append(over_splits(rate_study, name, width))
    for method, width in itertools.product(METHODS, WIDER):
        by_width[method].append(over_splits(width_study, method, width))
    settings = {"steps": STEPS, "batch_size": BATCH, "prior_scale": SCALE, "splits": SPLITS}
    grid = {"rates": RATES, "widths": WIDTHS, "wider": WIDER}
    record("dropout_study", {**settings, **grid, "rate_study": by_rate, "width_study": by_width})
