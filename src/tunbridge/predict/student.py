"""Predictive distributions over numbers with the noise variance integrated out: Student's t, in closed form."""

from typing import Any

import jax
import numpy as np
from jax import Array
from scipy.special import betaln, digamma, gammaln, stdtr, stdtrit

from tunbridge.predict.base import levels_of, values_at
from tunbridge.predict.numbers import NumberPredictive
from tunbridge.predict.outputs import Outputs


class StudentPredictive(NumberPredictive):
    r"""Student's t per output, :math:`y \sim t_\nu(\mu, s)`, in closed form.

    Outputs that share their noise are jointly a multivariate t. Aleatoric is the mean variance of the noise, epistemic
    the variance of the network's output. What concerns single networks (`functions`, `log_probs`, `sample`) is computed
    from draws.

    Parameters
    ----------
    outputs
        Outputs of drawn networks, computed lazily.
    mean, stretch
        The centre, and the ratio of the squared scale to that of the noise alone, (points, outputs).
    shape, rate
        Parameters of the inverse-gamma posterior of the noise variance, (1,) if outputs share it, or (outputs,).
    """

    def __init__(self, outputs: Outputs, mean: Any, stretch: Any, shape: Any, rate: Any):
        super().__init__(outputs)
        self._mean = jax.device_put(mean)
        self._stretch = np.asarray(stretch, np.float64)
        self._df, self._groups = 2.0 * np.asarray(shape), len(shape)
        width = mean.shape[1]
        noise = np.where(shape > 1.0, rate / np.where(shape > 1.0, shape - 1.0, 1.0), np.inf)
        self._noise = np.broadcast_to(noise, (width,))[None]
        self._scale = np.sqrt(np.broadcast_to(rate / shape, (width,))[None] * self._stretch)

    @property
    def _moments(self) -> tuple[Array, Array, Array]:
        noise = np.broadcast_to(self._noise, self._stretch.shape)
        return self._mean, jax.device_put(noise), jax.device_put(noise * (self._stretch - 1.0))

    @property
    def _profile(self) -> tuple[Array, Array]:
        half = 0.5 * self._df
        constant = (half + 0.5) * (digamma(half + 0.5) - digamma(half)) + 0.5 * np.log(self._df) + betaln(half, 0.5)
        return self._mean, jax.device_put(np.log(self._scale) + constant[None])

    def quantile(self, q: Any) -> Array:
        """Quantiles of the t, (points, outputs); for several levels (levels, points, outputs)."""
        levels = levels_of(q, jax.dtypes.canonicalize_dtype(float))
        scores = stdtrit(self._df, levels.astype(np.float64)[..., None])[..., None, :]
        lead = (None,) * levels.ndim
        return jax.device_put(np.asarray(self._mean, np.float64)[lead] + scores * self._scale[lead])

    def cdf(self, y: Any) -> Array:
        """P(Y <= y) per output, (..., points, outputs)."""
        return jax.device_put(stdtr(self._df, self._scores(values_at(y, self._mean.shape))))

    def log_prob(self, y: Any) -> Array:
        """Log p(y) of all outputs jointly, (points,)."""
        scores = self._scores(np.asarray(self._checked(y), np.float64))
        grouped = scores.reshape(len(scores), self._groups, -1)
        df, width = self._df, grouped.shape[2]
        constant = gammaln(0.5 * (df + width)) - gammaln(0.5 * df) - 0.5 * width * np.log(np.pi * df)
        kernel = -0.5 * (df + width)[None] * np.log1p(np.sum(grouped**2, axis=2) / df[None])
        return jax.device_put(constant.sum() + kernel.sum(axis=1) - np.log(self._scale).sum(axis=1))

    def _scores(self, y: np.ndarray) -> np.ndarray:
        lead = (None,) * (y.ndim - 2)
        return (y - np.asarray(self._mean, np.float64)[lead]) / self._scale[lead]
