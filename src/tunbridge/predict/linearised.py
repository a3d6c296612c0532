"""Predictive distributions of a linearised network, whose outputs are normal."""

from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import Array
from scipy.special import entr, ndtr, ndtri

from tunbridge.core.errors import InputError
from tunbridge.core.tree import on_host
from tunbridge.predict.classes import ClassPredictive
from tunbridge.predict.numbers import NumberPredictive
from tunbridge.predict.outputs import Outputs


class NormalPredictive(NumberPredictive):
    r"""Normal noise around normal outputs, :math:`y \sim N(\mu, \Sigma + \sigma^2)`, in closed form.

    What concerns single networks (`functions`, `log_probs`, `sample`) is computed from draws of linear functions.

    Parameters
    ----------
    outputs
        Draws of linear functions, computed lazily.
    mean, covariance
        Mean and covariance of the outputs, (points, outputs) and (points, outputs, outputs).
    noise
        The variance of the noise, (points, outputs).
    """

    def __init__(self, outputs: Outputs, mean: Array, covariance: Array, noise: Array):
        super().__init__(outputs)
        self._mean, self._covariance, self._noise = mean, covariance, noise

    @property
    def _moments(self) -> tuple[Array, Array, Array]:
        return (
            self._mean,
            self._noise,
            on_host(lambda covariance: np.diagonal(covariance, axis1=1, axis2=2), self._covariance),
        )

    @property
    def _profile(self) -> tuple[Array, Array]:
        return self._mean, on_host(lambda total: 0.5 * np.log(2.0 * np.pi * np.e * total), self.total)

    def quantile(self, q: Any) -> Array:
        """Quantiles of the normal, (points, outputs); for several levels (levels, points, outputs)."""
        levels = np.asarray(q, jax.dtypes.canonicalize_dtype(float))
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise InputError(f"levels between 0 and 1 as {levels.dtype}", f"{q}", "Write 0.05, or [0.05, 0.95].")
        scores = ndtri(levels)[..., None, None]
        lead = (None,) * levels.ndim
        return on_host(lambda mean, std: mean[lead] + scores * std[lead], self._mean, self.std)

    def cdf(self, y: Any) -> Array:
        """P(Y <= y) per output, (..., points, outputs)."""
        values = np.asarray(y)
        if values.shape[-2:] != self._mean.shape:
            raise InputError(f"y of shape (..., {self._mean.shape})", f"shape {values.shape}", "Reshape y.")
        lead = (None,) * (values.ndim - 2)
        return on_host(
            lambda mean, std: ndtr(((values - mean[lead]) / std[lead]).astype(mean.dtype)), self._mean, self.std
        )

    def log_prob(self, y: Any) -> Array:
        """Log p(y) of all outputs jointly, (points,)."""
        return on_host(_log_normal, self._checked(y), self._mean, self._covariance, self._noise)


def _log_normal(y: np.ndarray, mean: np.ndarray, covariance: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Log density of y (points, outputs) under normals with covariance ``covariance + diag(noise)``, (points,)."""
    width = mean.shape[-1]
    total = covariance.astype(np.float64) + noise[..., None] * np.eye(width)
    residual = (y - mean).astype(np.float64)
    sign, log_det = np.linalg.slogdet(total)
    log_det = np.where(sign > 0, log_det, np.nan)
    squared = np.sum(residual * np.linalg.solve(total, residual[..., None])[..., 0], axis=1)
    return (-0.5 * (squared + log_det + width * np.log(2.0 * np.pi))).astype(mean.dtype)


class LinkedPredictive(ClassPredictive):
    """Class probabilities computed by a link from normal outputs; single networks are draws of linear functions.

    Parameters
    ----------
    outputs
        Draws of linear functions, computed lazily.
    probs, aleatoric
        Class probabilities and aleatoric entropy from the link, (points, classes) and (points,).
    """

    def __init__(self, outputs: Outputs, probs: Array, aleatoric: Array):
        super().__init__(outputs)
        self._probs, self._aleatoric = probs, aleatoric

    @cached_property
    def _split(self) -> tuple[Array, Array, Array]:
        entropy = on_host(lambda probs: entr(probs).sum(axis=-1), self._probs)
        epistemic = on_host(lambda total, noise: np.maximum(total - noise, 0.0), entropy, self._aleatoric)
        return self._probs, on_host(np.minimum, self._aleatoric, entropy), epistemic

    def log_prob(self, y: Any) -> Array:
        """Log probability of each label, (points,)."""
        labels = self._checked(y)[:, None]
        with np.errstate(divide="ignore"):
            return on_host(lambda probs: np.log(np.take_along_axis(probs, labels, axis=1)[:, 0]), self._probs)
