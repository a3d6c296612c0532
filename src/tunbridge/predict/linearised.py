"""Predictive distributions of a network taken for linear, whose outputs are normal."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.scipy.stats import norm
from scipy.special import ndtri

from tunbridge.core.errors import InputError
from tunbridge.predict.classes import ClassPredictive
from tunbridge.predict.numbers import NumberPredictive
from tunbridge.predict.outputs import Outputs


class NormalPredictive(NumberPredictive):
    r"""Numbers with normal noise around normal outputs, :math:`y \sim N(\mu, \Sigma + \sigma^2)`: one normal, no draws.

    What is asked of single networks (`functions`, `log_probs`, `sample`) is answered by draws of linear functions.

    Parameters
    ----------
    outputs
        Draws of linear functions, computed when they are asked for.
    mean, covariance
        Of the outputs, (points, outputs) and (points, outputs, outputs).
    noise
        The variance of the noise, (points, outputs).
    """

    def __init__(self, outputs: Outputs, mean: Array, covariance: Array, noise: Array):
        super().__init__(outputs)
        self._mean, self._covariance, self._noise = mean, covariance, noise

    @property
    def _moments(self) -> tuple[Array, Array, Array]:
        return self._mean, self._noise, jnp.diagonal(self._covariance, axis1=1, axis2=2)

    @property
    def _profile(self) -> tuple[Array, Array]:
        return self._mean, 0.5 * jnp.log(2.0 * jnp.pi * jnp.e * self.total)

    def quantile(self, q: Any) -> Array:
        """Of the normal, (points, outputs); for several levels (levels, points, outputs)."""
        levels = np.asarray(q, jax.dtypes.canonicalize_dtype(float))
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise InputError(f"levels between 0 and 1 as {levels.dtype}", f"{q}", "Write 0.05, or [0.05, 0.95].")
        scores = ndtri(levels)[..., None, None]
        lead = (None,) * levels.ndim
        return self._mean[lead] + scores * self.std[lead]

    def cdf(self, y: Any) -> Array:
        """P(Y <= y) an output, (..., points, outputs)."""
        values = jnp.asarray(y)
        if values.shape[-2:] != self._mean.shape:
            raise InputError(f"y of shape (..., {self._mean.shape})", f"shape {values.shape}", "Reshape y.")
        lead = (None,) * (values.ndim - 2)
        return norm.cdf((values - self._mean[lead]) / self.std[lead])

    def log_prob(self, y: Any) -> Array:
        """Log p(y) of all outputs jointly, (points,)."""
        return _log_normal(jnp.asarray(self._checked(y)), self._mean, self._covariance, self._noise)


@jax.jit
def _log_normal(y: Array, mean: Array, covariance: Array, noise: Array) -> Array:
    root = jnp.linalg.cholesky(covariance + jax.vmap(jnp.diag)(noise))
    score = jax.vmap(lambda half, rest: solve_triangular(half, rest, lower=True))(root, y - mean)
    width = jnp.asarray(mean.shape[-1] * np.log(2.0 * np.pi), mean.dtype)
    log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)), axis=1)
    return -0.5 * (jnp.sum(score**2, axis=1) + log_det + width)


class LinkedPredictive(ClassPredictive):
    """Classes whose probabilities a link made of normal outputs; single networks are draws of linear functions.

    Parameters
    ----------
    outputs
        Draws of linear functions, computed when they are asked for.
    probs, aleatoric
        As the link says, (points, classes) and (points,).
    """

    def __init__(self, outputs: Outputs, probs: Array, aleatoric: Array):
        super().__init__(outputs)
        self._probs, self._aleatoric = probs, aleatoric

    @cached_property
    def _split(self) -> tuple[Array, Array, Array]:
        whole = jnp.sum(jax.scipy.special.entr(self._probs), axis=-1)
        epistemic = jnp.maximum(whole - self._aleatoric, 0.0)
        return self._probs, jnp.minimum(self._aleatoric, whole), epistemic

    def log_prob(self, y: Any) -> Array:
        """Log probability of each label, (points,)."""
        labels = jnp.asarray(self._checked(y))
        return jnp.log(jnp.take_along_axis(self._probs, labels[:, None], axis=1)[:, 0])
