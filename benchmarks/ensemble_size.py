"""How many members does an ensemble need? Test scores for M = 1 ... 50 on four real data sets, three splits each.

python benchmarks/ensemble_size.py -> benchmarks/results/ensemble_size.json
"""

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


def study(name: str, split: int) -> list[dict]:
    key = jax.random.key(split)
    train, test = tb.datasets.split(getattr(tb.datasets, name)(), key)
    scaling = Scaling.of(train, numbers=name == "diabetes")
    train, test = scaling.apply(train), scaling.apply(test)
    model = tb.Model(tb.networks.MLP((50,), "relu"), tb.priors.Normal((1.0, tb.priors.fan_in(1.0))), SETS[name])
    posterior = tb.Ensemble(tb.MAP(), max(SIZES)).fit(model, train, key=key)
    rows = []
    for size in SIZES:
        # disjoint ensembles of this size, their scores averaged
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
    for name in SETS:
        splits = [study(name, split) for split in range(SPLITS)]
        found[name] = {
            score: {
                "mean": [float(np.mean([s[i][score] for s in splits])) for i in range(len(SIZES))],
                "gain_over_one": [
                    float(np.mean([s[i][score] - s[0][score] for s in splits])) for i in range(len(SIZES))
                ],
                "gain_sd": [float(np.std([s[i][score] - s[0][score] for s in splits])) for i in range(len(SIZES))],
            }
            for score in splits[0][0]
        }
        print(name, found[name]["NLL"]["mean"], flush=True)
    record("ensemble_size", {"sizes": SIZES, "splits": SPLITS, "sets": found})
