"""Distances between two predictive distributions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.declared import Count, as_floats, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key
from tunbridge.metrics.quadrature import panels
from tunbridge.metrics.targets import PredictiveOfClasses, PredictiveOfNumbers


@checked
def wasserstein(predictive: PredictiveOfNumbers, other: PredictiveOfNumbers) -> float:
    r"""Mean 1-Wasserstein distance of the marginals, :math:`\int_0^1 |F^{-1}(q) - G^{-1}(q)| \, dq`, in units of y.

    Computed by Gauss-Legendre quadrature over the levels q.
    """
    levels, weight = panels()
    if predictive.mean.shape != other.mean.shape:
        shapes = f"{predictive.mean.shape} and {other.mean.shape}"
        raise InputError("predictives of the same points and outputs", shapes, "Predict at one x.")
    gap = jnp.abs(predictive.quantile(levels) - other.quantile(levels))
    return float(jnp.mean(jnp.tensordot(weight, gap, axes=1)))


@checked
def agreement(predictive: PredictiveOfClasses, other: PredictiveOfClasses) -> float:
    """Share of points at which both predictives have the same most probable class."""
    probs, others = _probs(predictive, other)
    return float(np.mean(probs.argmax(axis=-1) == others.argmax(axis=-1)))


@checked
def total_variation(predictive: PredictiveOfClasses, other: PredictiveOfClasses) -> float:
    r"""Mean total variation distance of the class probabilities, :math:`\frac12 \sum_c |p_c - q_c|`, from 0 to 1."""
    probs, others = _probs(predictive, other)
    return float(np.mean(0.5 * np.abs(probs - others).sum(axis=-1)))


@checked
def sliced_wasserstein(functions: Any, other: Any, key: Key, slices: Count = 128) -> float:
    r"""Sliced 1-Wasserstein distance between two sets of functions, in units of y.

    It is the mean over random unit directions :math:`u` of :math:`W_1(u \cdot f, u \cdot g)`, where a function is the
    vector of its values at all points. Unlike a distance of marginals, it depends on the dependence between points.

    Parameters
    ----------
    functions, other
        (draws, points, ...) each, as returned by `Predictive.functions`; the numbers of draws may differ.
    key
        Draws the directions; the same key gives the same directions.
    slices
        Number of directions.
    """
    given = as_floats(functions, "functions"), as_floats(other, "other")
    sets = [values.reshape(len(values), -1) for values in given if values.size and values.ndim]
    if len(sets) < 2 or sets[0].shape[1] != sets[1].shape[1]:
        shapes = " and ".join(str(values.shape) for values in given)
        raise InputError("two sets of functions (draws, points, ...) at the same points", shapes, "Predict at one x.")
    directions = np.asarray(jax.random.normal(key, (sets[0].shape[1], slices)), np.float64)
    directions /= np.linalg.norm(directions, axis=0, keepdims=True)
    a, b = (np.sort(values @ directions, axis=0) for values in sets)
    edges = np.union1d(np.arange(len(a) + 1) * len(b), np.arange(len(b) + 1) * len(a))  # levels times len(a) len(b)
    share = np.diff(edges) / (len(a) * len(b))
    gap = np.abs(a[edges[:-1] // len(b)] - b[edges[:-1] // len(a)])
    return float(np.mean(share @ gap))


def _probs(predictive: PredictiveOfClasses, other: PredictiveOfClasses) -> tuple[np.ndarray, np.ndarray]:
    probs, others = (np.asarray(p.probs) for p in (predictive, other))
    if probs.shape != others.shape:
        raise InputError(
            "predictives of the same points and classes", f"{probs.shape} and {others.shape}", "Predict at one x."
        )
    return probs, others
