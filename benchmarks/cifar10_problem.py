"""CIFAR-10: training data, test data and scores."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tunbridge as tb
from tunbridge.predict.push import push_outputs

MEAN, SCALE = np.array([0.49, 0.48, 0.44], np.float32), np.float32(0.2)
HELD, EXAMPLES, BINS = 5_000, 12, 20
LEAST = 1e-30
"""Lower bound of probabilities before taking logarithms."""


class Problem(NamedTuple):
    """Training data, the data to score on, and the rows and probabilities of the reference."""

    train: tb.Data
    judged: tb.Data
    index: np.ndarray | None = None
    probs: np.ndarray | None = None

    def flat(self) -> "Problem":
        """The same problem with images as vectors."""
        train, judged = (tb.Data(part.x.reshape(len(part.x), -1), part.y) for part in self[:2])
        return self._replace(train=train, judged=judged)


def made_up(num: int, seed: int) -> tb.Data:
    """Synthetic images: noise of 8 x 8 pixels, lighter in one of ten places, whose number is the label."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(size=(num, 8, 8, 3)).astype(np.float32), rng.integers(10, size=num).astype(np.int32)
    x[np.arange(num), y // 4 * 3, y % 4 * 2] += 1.0
    return tb.Data(x, y)


def problem(small: bool, validate: bool, reference: str | None) -> Problem:
    train, judged = (made_up(200, 0), made_up(100, 1)) if small else tb.datasets.cifar10()
    if validate:
        cut = len(train.x) // 2 if small else len(train.x) - HELD
        train, judged = (tb.Data(train.x[part], train.y[part]) for part in (slice(cut), slice(cut, None)))
    train, judged = (tb.Data((np.asarray(part.x) - MEAN) / SCALE, part.y) for part in (train, judged))
    path = reference or Path(os.environ.get("TUNBRIDGE_DATA", ".")) / "cifar10_hmc_probs_half.npz"
    if validate or (small and reference is None):
        return Problem(train, judged)
    if not Path(path).exists():
        print(f"no agreement and total variation: there is no {path}", flush=True)
        return Problem(train, judged)
    file = np.load(path)
    return Problem(train, judged, file["index"], file["probs"].astype(np.float32))


def of_probs(probs: np.ndarray) -> Any:
    """Predictive with the given probabilities (points, classes)."""
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Categorical(probs.shape[1]))
    return push_outputs(model, np.log(np.maximum(probs, LEAST, dtype=np.float32))[None], (), probs)


def scores(probs: np.ndarray, data: Problem) -> dict[str, float]:
    predictive, y = of_probs(probs), data.judged.y
    found = {
        "accuracy": tb.metrics.accuracy(predictive, y),
        "NLL": -tb.metrics.log_score(predictive, y),
        "ECE": tb.metrics.ece(predictive, y, BINS, tb.metrics.equal_mass),
    }
    if data.index is not None and data.probs is not None:
        pair = of_probs(probs[data.index]), of_probs(data.probs)
        found |= {"agreement": tb.metrics.agreement(*pair), "total_variation": tb.metrics.total_variation(*pair)}
    return found


def examples(functions: np.ndarray, data: Problem) -> dict[str, Any]:
    """For the first images: the true class, the probabilities, and their central 90 % interval over the draws."""
    some = functions[:, :, :EXAMPLES].reshape(-1, *functions[0, 0, :EXAMPLES].shape)
    low, high = np.quantile(some, (0.05, 0.95), axis=0)
    parts = {"probs": some.mean(0), "low": low, "high": high}
    found = {name: np.round(part, 4).tolist() for name, part in parts.items()}
    return {"label": np.asarray(data.judged.y[:EXAMPLES]).tolist(), **found}
