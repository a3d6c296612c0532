"""Scores of a predictive over all rows, and curves to be drawn."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tunbridge import metrics
from tunbridge.core.types import Predictive
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.likelihoods.multitask import MultiTask

Curve = dict[str, list[float]]

NUMBERS = {
    "RMSE": metrics.rmse,
    "NLL": lambda predictive, y: -metrics.log_score(predictive, y),
    "CRPS": metrics.crps,
    "90 % coverage": metrics.coverage,
    "interval score": metrics.interval_score,
}
CLASSES = {
    "accuracy": metrics.accuracy,
    "NLL": NUMBERS["NLL"],
    "Brier": metrics.brier,
    "ECE": metrics.ece,
}
_MASSES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
_BINS = 10


def scores(likelihood: Any) -> Mapping[str, Callable[[Any, Any], float]]:
    """Score functions by name for this likelihood; for several tasks, the joint NLL and the scores of each task."""
    if not isinstance(likelihood, MultiTask):
        return CLASSES if isinstance(likelihood, OfClasses) else NUMBERS
    functions = {"NLL": NUMBERS["NLL"]}
    for number, (name, task) in enumerate(zip(likelihood.names, likelihood.tasks, strict=True)):
        for label, score in scores(task).items():
            functions[f"{label} of {name}"] = _of_task(likelihood, number, name, score)
    return functions


def _of_task(likelihood: MultiTask, number: int, name: str, score: Callable) -> Callable:
    return lambda predictive, y: score(predictive.tasks[name], likelihood.blocks(y)[number])


def calibration(predictive: Predictive, y: Any, classes: bool) -> Curve:
    """Calibration curve: coverage of intervals by their mass for numbers, accuracy by confidence for classes."""
    if not classes:
        return curve(_MASSES, [metrics.coverage(predictive, y, mass) for mass in _MASSES])
    reliability = metrics.reliability(predictive, y, _BINS, metrics.equal_mass)
    return curve(reliability.confidence, reliability.accuracy)


def epistemic_sd(predictive: Predictive) -> np.ndarray:
    """Epistemic standard deviation at each point: the root of the epistemic variance averaged over outputs."""
    return np.sqrt(np.asarray(predictive.epistemic, np.float64).reshape(len(predictive.mean), -1).mean(axis=1))


def by_distance(sd: np.ndarray, x: np.ndarray, train: np.ndarray) -> Curve:
    """Median of `sd` against the distance to the nearest training input, in bins of equally many inputs.

    Distances are Euclidean, with each feature divided by its standard deviation over the training inputs.
    """
    from sklearn.neighbors import NearestNeighbors

    flat, known = x.reshape(len(x), -1), train.reshape(len(train), -1)
    scale = np.where((spread := known.std(axis=0)) > 0, spread, 1.0)
    distances, _ = NearestNeighbors(n_neighbors=1).fit(known / scale).kneighbors(flat / scale)
    order = np.array_split(np.argsort(distances[:, 0], kind="stable"), min(_BINS, len(x)))
    return curve(
        [float(np.median(distances[part, 0])) for part in order], [float(np.median(sd[part])) for part in order]
    )


def histogram(values: np.ndarray, top: float) -> Curve:
    """Histogram density from 0 to `top`, at the centres of its bins."""
    heights, edges = np.histogram(values, bins=20, range=(0.0, top), density=True)
    return curve((edges[1:] + edges[:-1]) / 2, heights)


def curve(x: Any, y: Any, **band: Any) -> Curve:
    """A curve as lists of floats, ready for JSON."""
    return {name: np.asarray(part, np.float64).reshape(-1).tolist() for name, part in {"x": x, "y": y, **band}.items()}
