"""Behaviour of uncertainties: with more rows, for unknown classes, on held-out rows, in a gap.

    TUNBRIDGE_DATA=FOLDER python benchmarks/evidence.py [k1] [k13] [k15] [k16] [--again]
    -> benchmarks/results/evidence.json, one row at a time; existing rows are not measured again

FOLDER has uci/NAME.npz, mnist.npz and notmnist_test.npz. k1: epistemic and aleatoric standard deviations by number of
rows, on a curve with noise 0.3 and on three tables. k13: entropies of digits, rotated digits and letters, for networks
trained on digits. k15: calibration on training and on test rows, for three sets. k16: three tables without the middle
third of the input most correlated with y, and the predictions for the rows there.
"""

import argparse
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import real_sets
from record import put, recorded
from scipy import ndimage, stats

import tunbridge as tb
from tunbridge.bench.truth.reference import AMONG, BETWEEN, opening
from tunbridge.inference.standardised import fit_standardised
from tunbridge.model import defaults

KEY = jax.random.key(0)
SIZES = (10, 100, 1000, 10_000)
TABLES = ("kin8nm", "power", "protein")
GAPS, MANY = ("concrete", "boston", "wine"), 50
"""Tables, and the least number of distinct values of an input in which a gap is cut."""
SMALL = {"digits": tb.datasets.digits, "breast_cancer": tb.datasets.breast_cancer, "wine": tb.datasets.wine}
ANGLES = tuple(range(0, 181, 20))
BINS = np.linspace(0.0, np.log(10), 31)
BELIEVED = tb.priors.Normal(tb.priors.fan_in(4.0))
"""Prior scale of classifier weights: with a scale of 1 the mode from so few rows is almost constant.

Chosen after first results of k13 and k15, on the rows that these studies score."""
CHAINS = tb.MCLMC(run=tb.Run(chains=2, warmup=1500, draws=200, thin=8))
LAST = tb.Laplace(structure=tb.structures.Full(), subset=tb.subsets.LastLayer())


def fit(method: Any, model: tb.Model, x: Any, y: Any, **options: Any) -> tb.Standardised:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.ConvergenceWarning)
        return fit_standardised(method, model, x, y, key=KEY, progress=False, **options)


# More rows


def by_rows(name: str) -> dict[str, Any]:
    """Rows of which the first ones are used, inputs to predict at, and a model."""
    if name == "curve":
        key_x, key_noise = jax.random.split(jax.random.key(7))
        x = jax.random.uniform(key_x, (SIZES[-1], 1), minval=-2.0, maxval=2.0)
        y = jnp.sin(2 * x[:, 0]) + 0.3 * jax.random.normal(key_noise, (SIZES[-1],))
        model = tb.Model(tb.networks.MLP((3,)), tb.priors.Normal(1.5), defaults.of_numbers())
        return {"model": model, "x": x, "y": y, "inputs": np.linspace(-2, 2, 50)[:, None]}
    task = real_sets.load(name, 0)
    order = np.random.default_rng(0).permutation(len(task.train[0]))[: SIZES[-1]]
    model = tb.Model(tb.networks.MLP((10,)), defaults.prior(), defaults.of_numbers())
    return {"model": model, "x": task.train[0][order], "y": task.train[1][order], "inputs": task.test[0][:200]}


def k1(name: str, method: str) -> dict[str, Any]:
    """Epistemic and aleatoric standard deviations by number of rows.

    Other rows have weight zero, so that one program serves all sizes; chains start where the last ended.
    """
    made = by_rows(name)
    chosen = CHAINS if method == "mclmc" else tb.METHODS[method]()
    rows: list[dict[str, float]] = []
    options: dict[str, Any] = {}
    for num in SIZES:
        counts = (np.arange(len(made["x"])) < num).astype(float)
        posterior = fit(chosen, made["model"], made["x"], made["y"], weight=counts, **options)
        predictive = posterior.predict(made["inputs"])
        row = {part: float(jnp.sqrt(jnp.mean(getattr(predictive, part)))) for part in ("epistemic", "aleatoric")}
        rows.append({"rows": int(counts.sum()), **row})
        if method == "mclmc":
            options["init"] = posterior.posterior
            functions = posterior.posterior.functions(posterior.scaling.inputs(made["inputs"]))
            rows[-1]["R-hat at 95 %"] = float(np.nanquantile(tb.diagnostics.rhat(functions), 0.95))
    some = rows[1:]
    slope = np.polyfit(np.log([r["rows"] for r in some]), np.log([r["epistemic"] for r in some]), 1)[0]
    return {"sizes": rows, "slope from 100 rows": float(slope)}


# Unknown classes


def for_images(method: str, batch: int) -> Any:
    train = tb.Train(2000, batch)
    return {
        "map": tb.MAP(train=train),
        "ensemble": tb.Ensemble(tb.MAP(train=train), 5),
        "mcdropout": tb.MCDropout(rate=0.2, train=train),
        "laplace last layer": tb.Laplace(structure=LAST.structure, subset=LAST.subset, point=tb.MAP(train=train)),
        "meanfield": tb.MeanField(train=tb.Train(4000, batch)),
        "sghmc": tb.SGHMC(run=tb.Run(chains=2, warmup=4000, draws=60, thin=100, batch_size=batch)),
    }[method]


def turned(images: np.ndarray, angle: float) -> np.ndarray:
    square = images.reshape(-1, 28, 28)
    return np.clip(ndimage.rotate(square, angle, axes=(1, 2), reshape=False, order=1), 0, 1).reshape(len(images), -1)


def strangeness(inside: tb.Predictive, outside: tb.Predictive) -> dict[str, float]:
    """AUROC of detecting letters by the entropy and by its epistemic part, which is zero for a point estimate."""
    found = {}
    for part in ("entropy", "epistemic"):
        values = [np.asarray(getattr(one, part)) for one in (inside, outside)]
        truth = np.repeat([False, True], [len(one) for one in values])
        found[f"AUROC of {part}"] = tb.metrics.auroc(np.concatenate(values), truth)
    return found


def k13(_: str, method: str) -> dict[str, Any]:
    task = real_sets.load("mnist", 0)
    task = task._replace(model=tb.Model(task.model.network, BELIEVED, task.model.likelihood))
    posterior = task.fit(for_images(method, task.batch_size), KEY)
    digits, labels = task.test
    inside, outside = posterior.predict(digits), posterior.predict(task.strange)
    histograms = {
        name: np.histogram(np.asarray(one.entropy), BINS)[0].tolist()
        for name, one in {"digits": inside, "letters": outside}.items()
    }
    angles = []
    for angle in ANGLES:
        seen = posterior.predict(turned(digits[:500], angle))
        angles.append({"angle": angle, "accuracy": tb.metrics.accuracy(seen, labels[:500])})
        angles[-1]["entropy"] = float(jnp.mean(seen.entropy))
        angles[-1]["NLL"] = -tb.metrics.log_score(seen, labels[:500])
    one = int(np.flatnonzero(labels == 1)[0])
    picture = [np.asarray(posterior.predict(turned(digits[one : one + 1], a)).probs)[0] for a in ANGLES]
    return {
        "accuracy": tb.metrics.accuracy(inside, labels),
        "NLL": -tb.metrics.log_score(inside, labels),
        "ECE": tb.metrics.ece(inside, labels),
        **strangeness(inside, outside),
        "entropy": histograms,
        "confident of letters": float(jnp.mean(outside.probs.max(axis=1) > 0.9)),
        "turned": angles,
        "turned one": np.round(picture, 3).tolist(),
    }


# Training rows and test rows


def for_classes(method: str, num: int) -> tuple[Any, Any]:
    """A method and a prior; maximum likelihood is MAP with almost no prior."""
    run = tb.Run(chains=4, warmup=4000, draws=200, thin=20, batch_size=min(32, num))
    return {
        "maximum likelihood": (tb.MAP(), tb.priors.Normal(tb.priors.fan_in(100.0))),
        "map": (tb.MAP(), BELIEVED),
        "ensemble": (tb.Ensemble(tb.MAP(), 5), BELIEVED),
        "laplace last layer": (LAST, BELIEVED),
        "sghmc": (tb.SGHMC(run=run), BELIEVED),
    }[method]


def k15(name: str, method: str, train_share: float = 0.3) -> dict[str, Any]:
    train, test = tb.datasets.split(SMALL[name](), KEY, 1 - train_share)
    chosen, prior = for_classes(method, train.num)
    likelihood = defaults.of_classes(int(np.max(test.y)) + 1)
    model = tb.Model(tb.networks.MLP((50,), "relu"), prior, likelihood)
    posterior = fit(chosen, model, train.x, train.y)
    found: dict[str, Any] = {"train_rows": train.num, "test_rows": test.num}
    for part, rows in (("train", train), ("test", test)):
        predictive = posterior.predict(rows.x)
        bins = tb.metrics.reliability(predictive, rows.y, bins=10)
        found[part] = {
            "accuracy": tb.metrics.accuracy(predictive, rows.y),
            "confidence": float(jnp.mean(predictive.probs.max(axis=1))),
            "NLL": -tb.metrics.log_score(predictive, rows.y),
            "ECE": tb.metrics.ece(predictive, rows.y),
            "reliability": {part: np.asarray(values).tolist() for part, values in bins._asdict().items()},
        }
    return found


# A gap


def gap(x: np.ndarray, y: np.ndarray) -> tuple[int, np.ndarray]:
    """The many-valued input with the largest rank correlation with y, and a mask of the rows in its middle third."""
    telling = [abs(stats.spearmanr(one, y)[0]) if len(np.unique(one)) > MANY else 0.0 for one in x.T]
    column = int(np.argmax(telling))
    low, high = np.quantile(x[:, column], [1 / 3, 2 / 3])
    return column, (x[:, column] > low) & (x[:, column] < high)


def k16(name: str, method: str) -> dict[str, Any]:
    task = real_sets.load(name, 0)
    x, y = (np.concatenate(parts) for parts in zip(task.train, task.test, strict=True))
    column, between = gap(x, y)
    order = np.random.default_rng(0).permutation(np.flatnonzero(~between))
    held, seen = np.split(order, [len(order) // 5])
    model = tb.Model(tb.networks.MLP((20,)), defaults.prior(), defaults.of_numbers())
    made = tb.NUTS(run=tb.Run(chains=2, warmup=300, draws=300)) if method == "nuts" else tb.METHODS[method]()
    posterior = fit(made, model, x[seen], y[seen])
    middle = np.flatnonzero(between)
    middle = middle[:: max(1, len(middle) // 200)]
    both = posterior.predict(np.concatenate([x[held], x[middle]]))
    places = np.repeat([AMONG, BETWEEN], [len(held), len(middle)])
    found: dict[str, Any] = {"input": column, "rows": len(seen), "sd": opening(both.functions, places)}
    lower, upper = (np.asarray(edge)[:, 0] for edge in both.interval(0.5))
    width = [float(np.median((upper - lower)[places == place])) for place in (AMONG, BETWEEN)]
    found["range"] = width[1] / width[0]
    for part, rows in (("among", held), ("between", middle)):
        predictive = posterior.predict(x[rows])
        found[part] = {
            "NLL": -tb.metrics.log_score(predictive, y[rows]),
            "RMSE": tb.metrics.rmse(predictive, y[rows]),
            "90 % coverage": tb.metrics.coverage(predictive, y[rows]),
        }
    return found


STUDIES: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "k1": (k1, ("curve", *TABLES), ("laplace", "ensemble", "mclmc")),
    "k13": (k13, ("mnist",), ("map", "ensemble", "mcdropout", "laplace last layer", "meanfield", "sghmc")),
    "k15": (k15, tuple(SMALL), ("maximum likelihood", "map", "ensemble", "laplace last layer", "sghmc")),
    "k16": (k16, GAPS, ("laplace", "ensemble", "mcdropout", "meanfield", "nuts")),
}
"""A study with its data sets and methods."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", default=list(STUDIES), help=", ".join(STUDIES))
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    for study in options.studies:
        run, sets, methods = STUDIES[study]
        for method in methods:
            for name in sets:
                label = f"{name}, {method}"
                if options.again or label not in recorded("evidence").get(study, {}):
                    found = run(name, method)
                    put("evidence", study, label, found)
                    print(study, label, str(found)[:300], flush=True)
