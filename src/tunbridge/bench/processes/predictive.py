"""A normal distribution at each point, of which it is known what is function and what is noise."""

from functools import cached_property
from typing import Any

import jax
import numpy as np
from scipy.special import ndtr, ndtri

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key
from tunbridge.predict.base import AbstractPredictive

_FUNCTIONS = 100
"""How many functions are drawn where functions are asked for."""
_JITTER = 1e-10
"""Added to the diagonal of a covariance that functions are drawn with, as a share of its mean."""


class ProcessPredictive(AbstractPredictive):
    """y = f(x) + noise with normal f and noise: all answers are formulas, in float64 of NumPy, (points, 1).

    Parameters
    ----------
    mean, covariance
        Of f at the points, (points,) and a function that gives (points, points): it is asked for draws alone.
    epistemic, noise
        The variances of f, (points,), and of the noise.
    key
        Draws `functions`.
    """

    def __init__(self, mean: np.ndarray, epistemic: np.ndarray, noise: float, covariance: Any, key: Key):
        self._mean, self._epistemic, self._noise = mean, epistemic, noise
        self._covariance, self._key = covariance, key

    @property
    def mean(self) -> Any:
        """Expected y."""
        return self._mean[:, None]

    @property
    def mode(self) -> Any:
        """The mean."""
        return self.mean

    @property
    def aleatoric(self) -> Any:
        """The variance of the noise."""
        return np.full((len(self._mean), 1), self._noise)

    @property
    def epistemic(self) -> Any:
        """The variance of f."""
        return self._epistemic[:, None]

    @property
    def variance(self) -> Any:
        """Aleatoric + epistemic."""
        return self.total

    @property
    def std(self) -> Any:
        """The root of the variance."""
        return np.sqrt(self.total)

    @property
    def entropy(self) -> Any:
        """In nats."""
        return 0.5 * np.log(2 * np.pi * np.e * self.variance)

    @cached_property
    def functions(self) -> Any:
        """100 draws of f, jointly over the points, (100, points, 1)."""
        return self._functions(self._key, _FUNCTIONS)

    def quantile(self, q: Any) -> Any:
        """Quantiles (points, 1); for several levels (levels, points, 1)."""
        levels = np.asarray(q, np.float64)
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise InputError("levels between 0 and 1", f"{q}", "Write 0.05, or [0.05, 0.95].")
        return self.mean + self.std * ndtri(levels)[..., None, None]

    def cdf(self, y: Any) -> Any:
        """P(Y <= y), (..., points, 1)."""
        return ndtr((np.asarray(y, np.float64) - self.mean) / self.std)

    def log_prob(self, y: Any) -> Any:
        """Log p(y), (points,)."""
        z = (np.asarray(y, np.float64).reshape(-1) - self._mean) / self.std[:, 0]
        return -0.5 * z**2 - np.log(self.std[:, 0]) - 0.5 * np.log(2 * np.pi)

    def sample(self, key: Key, num: int) -> Any:
        """Draws of y, jointly over the points, (num, points, 1)."""
        key_f, key_noise = jax.random.split(key)
        functions = self._functions(key_f, num)
        return functions + np.sqrt(self._noise) * np.asarray(jax.random.normal(key_noise, functions.shape))

    def _functions(self, key: Key, num: int) -> np.ndarray:
        covariance = self._covariance()
        jitter = _JITTER * np.trace(covariance) / len(covariance)
        spread = np.linalg.cholesky(covariance + jitter * np.eye(len(covariance)))
        standard = np.asarray(jax.random.normal(key, (num, len(covariance))), np.float64)
        return (self._mean[None] + standard @ spread.T)[..., None]
