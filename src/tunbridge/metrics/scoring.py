"""Scores of a predictive distribution against the observed y, averaged over points (and outputs)."""

from typing import Any

import jax.numpy as jnp

from tunbridge.core.declared import checked
from tunbridge.metrics.quadrature import panels
from tunbridge.metrics.targets import PredictiveDensity, PredictiveOfClasses, PredictiveOfNumbers, column, labels

_TAIL = 1e-6
_MOST_STEPS = 2048


@checked
def log_score(predictive: PredictiveDensity, y: Any) -> float:
    """Mean log predictive density of y; its negative is the NLL."""
    return float(jnp.mean(predictive.log_prob(y)))


@checked
def rmse(predictive: PredictiveOfNumbers, y: Any) -> float:
    """Root mean squared error of the predictive mean."""
    return float(jnp.sqrt(jnp.mean((predictive.mean - column(predictive, y)) ** 2)))


@checked
def accuracy(predictive: PredictiveOfClasses, y: Any) -> float:
    """Share of points whose most probable class is the right one."""
    return float(jnp.mean(jnp.argmax(predictive.probs, axis=-1) == labels(predictive, y)))


@checked
def brier(predictive: PredictiveOfClasses, y: Any) -> float:
    r"""Brier score, the mean of :math:`\sum_c (p_c - 1\{y = c\})^2`, from 0 to 2 :cite:p:`brier1950verification`."""
    probs = predictive.probs
    hit = jnp.arange(probs.shape[-1])[None] == labels(predictive, y)[:, None]
    return float(jnp.mean(jnp.sum((probs - hit) ** 2, axis=-1)))


@checked
def crps(predictive: PredictiveOfNumbers, y: Any) -> float:
    r"""Continuous ranked probability score, in the units of y :cite:p:`gneiting2007strictly`.

    The mean of :math:`\int (F(t) - 1\{t \ge y\})^2 \, dt`, by Gauss-Legendre panels on both sides of y. For counts and
    ordered classes that span fewer than 2,048 values it is the ranked probability score, a sum over whole numbers.
    """
    values = column(predictive, y)
    low, high = predictive.quantile([_TAIL, 1 - _TAIL])
    inside = jnp.clip(values, low, high)
    if predictive.discrete and float(jnp.max(high - low)) < _MOST_STEPS:
        steps = jnp.arange(float(jnp.max(high - low)) + 1)[:, None, None] + low[None]
        gap = (predictive.cdf(steps) - (steps >= values[None])) ** 2
        return float(jnp.mean(jnp.sum(gap, axis=0) + jnp.abs(values - inside)))
    nodes, weights = panels(16)
    left = low[None] + (inside - low)[None] * nodes[:, None, None]
    right = inside[None] + (high - inside)[None] * nodes[:, None, None]
    below = jnp.tensordot(weights, predictive.cdf(left) ** 2, axes=1) * (inside - low)
    above = jnp.tensordot(weights, (1 - predictive.cdf(right)) ** 2, axes=1) * (high - inside)
    return float(jnp.mean(below + above + jnp.abs(values - inside)))


@checked
def interval_score(predictive: PredictiveOfNumbers, y: Any, mass: float = 0.9) -> float:
    r"""Width of the central interval plus :math:`2/\alpha` times the miss, :math:`\alpha = 1 - \text{mass}`.

    This is Winkler's score :cite:p:`winkler1972decision`, minimised in expectation by the true quantiles.
    """
    values = column(predictive, y)
    lower, upper = predictive.interval(mass)
    miss = jnp.maximum(lower - values, 0) + jnp.maximum(values - upper, 0)
    return float(jnp.mean(upper - lower + 2 / (1 - mass) * miss))
