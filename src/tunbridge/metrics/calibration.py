"""Calibration: whether predicted probabilities match observed frequencies."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.declared import Count, as_floats, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key
from tunbridge.metrics.targets import PredictiveOfClasses, PredictiveOfNumbers, column, labels

Edges = Callable[[np.ndarray, int], np.ndarray]


@checked
def equal_width(_: Any, bins: Count) -> np.ndarray:
    """Edges of bins of equal width on [0, 1]."""
    return np.linspace(0.0, 1.0, bins + 1)


@checked
def equal_mass(confidence: Any, bins: Count) -> np.ndarray:
    """Edges of bins with equal numbers of points, the quantiles of the confidence."""
    values = as_floats(confidence, "confidence")
    if not values.size or not np.isfinite(values).all():
        given = f"shape {values.shape}" if not values.size else "NaN or infinity"
        raise InputError("confidence as finite numbers, at least one", given, "Pass the probabilities of the modes.")
    return np.quantile(values, np.linspace(0.0, 1.0, bins + 1))


class Reliability(NamedTuple):
    """Mean confidence, accuracy and number of points in each non-empty bin of confidence."""

    confidence: np.ndarray
    accuracy: np.ndarray
    number: np.ndarray


@checked
def reliability(predictive: PredictiveOfClasses, y: Any, bins: Count = 15, edges: Edges = equal_width) -> Reliability:
    """Mean confidence and accuracy in bins of confidence, the probability of the most probable class."""
    probs = np.asarray(predictive.probs, np.float64)
    confidence, hit = probs.max(axis=1), probs.argmax(axis=1) == np.asarray(labels(predictive, y))
    inner = edges(confidence, bins)[1:-1]
    where = np.searchsorted(inner, confidence, side="left")
    count = np.bincount(where, minlength=bins)
    full = count > 0
    mean = [np.bincount(where, values, minlength=bins)[full] / count[full] for values in (confidence, hit)]
    return Reliability(mean[0], mean[1], count[full])


@checked
def ece(predictive: PredictiveOfClasses, y: Any, bins: Count = 15, edges: Edges = equal_width) -> float:
    """Expected calibration error: mean gap between confidence and accuracy :cite:p:`naeini2015obtaining`."""
    table = reliability(predictive, y, bins, edges)
    return float(np.sum(table.number * np.abs(table.confidence - table.accuracy)) / np.sum(table.number))


@checked
def coverage(predictive: PredictiveOfNumbers, y: Any, mass: float = 0.9) -> float:
    """Share of values inside the central interval of probability `mass` (the PICP)."""
    values = column(predictive, y)
    lower, upper = predictive.interval(mass)
    return float(jnp.mean((lower <= values) & (values <= upper)))


@checked
def pit(predictive: PredictiveOfNumbers, y: Any, key: Key | None = None) -> Array:
    """Probability integral transforms F(y), (points, outputs): uniform if the predictive distribution is right.

    For counts and ordered classes they are drawn uniformly between F(y - 1) and F(y), which needs a key
    :cite:p:`czado2009predictive`.
    """
    values = column(predictive, y)
    if not predictive.discrete:
        return predictive.cdf(values)
    if key is None:
        raise InputError(
            "key= for counts or ordered classes, whose PIT is randomised", "none", "Write pit(..., jax.random.key(0))."
        )
    below, upper = predictive.cdf(jnp.stack([values - 1, values]))
    return below + (upper - below) * jax.random.uniform(key, values.shape)
