"""What y may be at each point, with probabilities: the distribution that a decision averages over."""

from typing import Any, NamedTuple

import jax
import numpy as np

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Predictive
from tunbridge.metrics.targets import probs
from tunbridge.predict.tasks import TasksPredictive

_TAIL = 1e-6
_MOST_WHOLE = 4096
"""The most whole numbers that are told apart; beyond, counts are treated as real numbers."""


class Outcomes(NamedTuple):
    """Values that y takes at each point, and their probabilities."""

    values: np.ndarray
    """(outcomes, points), or (outcomes, points, outputs) for several outputs."""
    probs: np.ndarray
    """(outcomes, points)."""


class Cells(NamedTuple):
    """Cells of the real line at each point: `probs` of a distribution are differences of its cdf at the edges."""

    edges: np.ndarray
    """(cells + 1, points); of whole numbers, the number that ends a cell."""
    values: np.ndarray
    """A value for each cell, (cells, points)."""

    def probs(self, cdf: np.ndarray) -> np.ndarray:
        """Probabilities (cells, points) from the cdf at all edges but the outer ones, which are taken as 0 and 1."""
        end = np.ones((1, *cdf.shape[1:]))
        return np.maximum(np.diff(np.concatenate([0.0 * end, cdf, end]), axis=0), 0.0)


def outcomes(predictive: Predictive, num: int, key: Key | None) -> Outcomes:
    """Return all classes or whole numbers; of one real output, `num` cells of the real line; of several, `num` draws.

    Cells are narrow in the middle and wide in the tails; their values are their centres.
    """
    if isinstance(predictive, TasksPredictive):
        raise InputError("the predictive of one task", "one of several", "Pass predictive.tasks[name].")
    if (of_classes := probs(predictive)) is not None:
        return Outcomes(_numbered(of_classes), of_classes.T)
    mean = np.asarray(predictive.mean)
    if mean.shape[1] > 1:
        drawn = np.asarray(predictive.sample(jax.random.key(0) if key is None else key, num))
        return Outcomes(drawn, np.full((num, len(mean)), 1.0 / num))
    found = cells(predictive, num)
    return Outcomes(found.values, found.probs(np.asarray(predictive.cdf(found.edges[1:-1, :, None]))[..., 0]))


def by_network(predictive: Any, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Values (outcomes, points), and their probabilities under each network, (networks, outcomes, points)."""
    if (of_classes := probs(predictive)) is not None:
        return _numbered(of_classes), np.swapaxes(np.asarray(predictive.functions, np.float64), 1, 2)
    if np.asarray(predictive.mean).shape[1] > 1:
        raise InputError("a posterior of one output, or of classes", "one of several", "Fit one model per output.")
    found = cells(predictive, num)
    cdfs = [np.asarray(predictive.cdfs(edge[:, None]), np.float64)[..., 0] for edge in found.edges[1:-1]]
    return found.values, np.swapaxes(found.probs(np.stack(cdfs)), 0, 1)


def cells(predictive: Any, num: int) -> Cells:
    """Cells of one output between the quantiles at 1e-6 and 1 - 1e-6."""
    low, lower, middle, upper, high = np.asarray(
        predictive.quantile(np.array([_TAIL, 0.25, 0.5, 0.75, 1 - _TAIL])), np.float64
    )[..., 0]
    if predictive.discrete and (width := int((high - low).max())) < _MOST_WHOLE:
        values = low[None] + np.arange(width + 1.0)[:, None]
        return Cells(np.concatenate([values[:1] - 1.0, values]), values)
    scale = np.maximum(upper - lower, 1e-9 * np.maximum(high - low, np.abs(middle)) + np.finfo(float).tiny)
    ends = np.arcsinh((low - middle) / scale), np.arcsinh((high - middle) / scale)
    edges = middle + scale * np.sinh(np.linspace(*ends, num + 1))
    return Cells(edges, 0.5 * (edges[1:] + edges[:-1]))


def _numbered(of_classes: np.ndarray) -> np.ndarray:
    """The numbers of the classes at each point, (classes, points)."""
    return np.broadcast_to(np.arange(of_classes.shape[1])[:, None], of_classes.T.shape)
