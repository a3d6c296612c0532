"""Ensemble size: test scores for M = 1 ... 50 members on four real data sets, three splits each.

python benchmarks/ensemble_size.py -> benchmarks/results/ensemble_size.json
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from record import record

import tunbridge as tb
from tunbridge.datasets import Scaling

SIZES = (1, 2, 3, 5, 10, 20, 50)
SPLITS = 3
SETS = {
    "diabetes": tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)),
    "breast_cancer": tb.likelihoods.Bernoulli(),
    "wine": tb.likelihoods.Categorical(),
    "digits": tb.likelihoods.Categorical(),
}


SCALES = {"prior scale 1": 1.0, "prior scale 10": 10.0}
"""Prior scales of the weights, scaled by fan-in in the last layer. The second is almost no prior."""


def study(name: str, scale: float, split: int) -> list[dict]:
    key = jax.random.key(split)
    train, test = tb.datasets.split(getattr(tb.datasets, name)(), key)
    scaling = Scaling.of(train.x, train.y if name == "diabetes" else None)
    train, test = scaling.apply(train), scaling.apply(test)
    prior = tb.priors.Normal((scale, tb.priors.fan_in(scale)))
    model = tb.Model(tb.networks.MLP((50,), "relu"), prior, SETS[name])
    posterior = tb.Ensemble(tb.MAP(train=tb.Train(1000)), max(SIZES)).fit(model, train, key=key)
    rows = []
    for size in SIZES:
        # disjoint ensembles of this size, with averaged scores
        groups = [posterior.members[i : i + size] for i in range(0, max(SIZES) - size + 1, size)]
        scores = [_scores(tb.Mixture(posterior.model, key, tuple(group)), test) for group in groups]
        rows.append({score: float(np.mean([s[score] for s in scores])) for score in scores[0]})
    return rows


def _scores(posterior, test):
    predictive = posterior.predict(test.x)
    scores = {"NLL": -tb.metrics.log_score(predictive, test.y), "epistemic": float(jnp.mean(predictive.epistemic))}
    if test.y.ndim == 2:
        return {
            **scores,
            "RMSE": tb.metrics.rmse(predictive, test.y),
            "coverage": tb.metrics.coverage(predictive, test.y),
        }
    return {**scores, "accuracy": tb.metrics.accuracy(predictive, test.y), "ECE": tb.metrics.ece(predictive, test.y)}


if __name__ == "__main__":
    found = {}
    for name, label in itertools.product(SETS, SCALES):
        splits = [study(name, SCALES[label], split) for split in range(SPLITS)]
        found[f"{name}, {label}"] = {
            score: {
                "mean": [float(np.mean([s[i][score] for s in splits])) for i in range(len(SIZES))],
                "gain_over_one": [
                    float(np.mean([s[i][score] - s[0][score] for s in splits])) for i in range(len(SIZES))
                ],
                "gain_sd": [float(np.std([s[i][score] - s[0][score] for s in splits])) for i in range(len(SIZES))],
            }
            for score in splits[0][0]
        }
        print(name, label, found[f"{name}, {label}"]["NLL"]["mean"], flush=True)
    record("ensemble_size", {"sizes": SIZES, "splits": SPLITS, "sets": found})
