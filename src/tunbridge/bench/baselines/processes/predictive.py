"""The predictive of a Gaussian process: normal at each point, with the variances of function and noise apart."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import numpy as np
from scipy.special import ndtr, ndtri

from tunbridge.core.declared import Count, checked
from tunbridge.core.types import Key
from tunbridge.predict.base import AbstractPredictive, levels_of, targets, values_at

Draw = Callable[[Key, int], np.ndarray]

_FUNCTIONS = 100
"""The number of draws in `functions`."""


class ProcessPredictive(AbstractPredictive):
    """Predictive of y = f(x) + noise with normal f and noise, in closed form: float64 NumPy arrays (points, outputs).

    Parameters
    ----------
    mean, epistemic
        Mean and variance of f at the points, (points, outputs) each.
    noise
        The variance of the noise, (outputs,).
    draw
        ``draw(key, num)`` samples f jointly over the points, (num, points, outputs).
    key
        Key for `functions`.
    """

    def __init__(self, mean: np.ndarray, epistemic: np.ndarray, noise: np.ndarray, draw: Draw, key: Key):
        self._mean, self._epistemic, self._noise = mean, epistemic, noise
        self._draw, self._key = draw, key

    @property
    def mean(self) -> Any:
        """Expected y."""
        return self._mean

    @property
    def mode(self) -> Any:
        """The mean."""
        return self.mean

    @property
    def aleatoric(self) -> Any:
        """The variance of the noise."""
        return np.broadcast_to(self._noise[None], self._mean.shape)

    @property
    def epistemic(self) -> Any:
        """The variance of f."""
        return self._epistemic

    @property
    def variance(self) -> Any:
        """Variance of y, aleatoric plus epistemic."""
        return self.total

    @property
    def std(self) -> Any:
        """Standard deviation of y."""
        return np.sqrt(self.total)

    @property
    def entropy(self) -> Any:
        """Differential entropy of each output in nats, (points, outputs)."""
        return 0.5 * np.log(2 * np.pi * np.e * self.variance)

    @cached_property
    def functions(self) -> Any:
        """100 draws of f, jointly over the points, (100, points, outputs)."""
        return self._draw(self._key, _FUNCTIONS)

    def quantile(self, q: Any) -> Any:
        """Quantiles at level q, (points, outputs), or at several levels, (levels, points, outputs)."""
        levels = levels_of(q)
        lead = (None,) * levels.ndim
        return self.mean[lead] + self.std[lead] * ndtri(levels)[..., None, None]

    def cdf(self, y: Any) -> Any:
        """P(Y <= y), (..., points, outputs)."""
        return ndtr((values_at(y, self._mean.shape) - self.mean) / self.std)

    def log_prob(self, y: Any) -> Any:
        """Log density of y, jointly over outputs, (points,)."""
        z = (targets(y, self._mean.shape) - self.mean) / self.std
        return np.sum(-0.5 * z**2 - np.log(self.std) - 0.5 * np.log(2 * np.pi), axis=1)

    @checked
    def sample(self, key: Key, num: Count) -> Any:
        """Draws of y, jointly over the points, (num, points, outputs)."""
        key_f, key_noise = jax.random.split(key)
        functions = self._draw(key_f, num)
        noise = np.asarray(jax.random.normal(key_noise, functions.shape), np.float64)
        return functions + np.sqrt(self._noise)[None, None] * noise
