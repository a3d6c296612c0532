"""Priors ranked by evidence and by test NLL on three real data sets with several splits.

    python benchmarks/prior_ranking.py 1000 3 diabetes breast_cancer wine -> benchmarks/results/prior_ranking.json

Each fit is tempered sequential Monte Carlo on a network of ten tanh units; an accelerator is recommended.
"""

import itertools
import json
import sys
import time

import jax
import numpyro.distributions as dist
from record import RESULTS, record
from sklearn import datasets
from sklearn.model_selection import train_test_split

import tunbridge as tb
from tunbridge.model.priors import ARD, Cauchy, Hierarchical, Horseshoe, Laplace, Normal, StudentT, TwoNormals, fan_in

OUT = RESULTS / "prior_ranking.json"
PRIORS = {
    "Normal, scale 1": Normal(1.0),
    "Normal, fan-in": Normal(fan_in(1.0)),
    "Normal, unknown scale": Normal(fan_in(dist.HalfNormal(1.0))),
    "Laplace, fan-in": Laplace(fan_in(0.7)),
    "Student-t, df 3, fan-in": StudentT(3.0, fan_in(0.6)),
    "Cauchy, fan-in": Cauchy(fan_in(0.5)),
    "two normals, unknown scale": Hierarchical(TwoNormals(0.5, 1.0, 0.1), dist.HalfNormal(1.0)),
    "ARD": ARD(dist.HalfNormal(1.0)),
    "horseshoe, slab 2": Horseshoe(fan_in(dist.HalfCauchy(0.5)), slab=2.0),
}


def table(name):
    """(x, y, likelihood) of a data set."""
    if name == "diabetes":
        return *datasets.load_diabetes(return_X_y=True), tb.likelihoods.Gaussian(dist.HalfNormal(1.0))
    if name == "breast_cancer":
        x, y = datasets.load_breast_cancer(return_X_y=True)
        return x[:, :10], y, tb.likelihoods.Bernoulli()
    return *datasets.load_wine(return_X_y=True), tb.likelihoods.Categorical(3)


def main(particles, splits, *names):
    """Write rows as they are measured, after the existing rows of other data sets."""
    rows = json.loads(OUT.read_text())["rows"] if OUT.exists() else []
    rows = [row for row in rows if row["data"] not in names]
    for name, (label, prior) in itertools.product(names, PRIORS.items()):
        x, y, likelihood = table(name)
        model = tb.Model(tb.networks.MLP((10,)), prior, likelihood)
        for split in range(int(splits)):
            stratify = y if y.dtype.kind == "i" else None
            parts = train_test_split(x, y, test_size=0.3, random_state=split, stratify=stratify)
            train, test, key = (parts[0], parts[2]), (parts[1], parts[3]), jax.random.key(split)
            method, began = tb.TemperedSMC(particles=int(particles)), time.perf_counter()
            found = tb.bench.rank_priors(model, {label: prior}, train, test, method=method, key=key)
            seconds = time.perf_counter() - began
            rows.append({"data": name, "split": split, "train": len(train[0]), **found.rows[0], "seconds": seconds})
        print(rows[-1], flush=True)
        figures = {"particles": int(particles), "device": jax.devices()[0].device_kind, "rows": rows}
        record("prior_ranking", figures, f"prior_ranking.py {particles} {splits} {' '.join(names)}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ("1000", "3", "diabetes", "breast_cancer", "wine")))
