r"""Conjugate priors of noise and last-layer weights, whose posterior has a closed form.

Both families have :math:`w_j \mid \sigma^2 \sim N(0, \sigma^2 D_j^{-1})` for the weights of output j, with D diagonal.
They differ in what is assumed of :math:`\sigma^2`. V are the prior variances of the weights in the model.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.inference.linear.moments import Moments, Solved
from tunbridge.model import transforms
from tunbridge.model.likelihoods.gaussian import Gaussian

_FAR = 1e6


class Family(Module):
    """A conjugate prior of noise and weights. There is one noise variance for all outputs, or one per output."""

    @property
    @abc.abstractmethod
    def integrates(self) -> bool:
        """Whether noise is integrated out."""

    @abc.abstractmethod
    def check(self, likelihood: Gaussian) -> None:
        """Raise InputError if the likelihood's noise does not suit this family."""

    @abc.abstractmethod
    def unit(self, noise: np.ndarray) -> np.ndarray:
        """Return the noise variance at which a weight's prior variance is V: D is this over V."""

    @abc.abstractmethod
    def precision(self, moments: Moments, solved: Solved, noise: np.ndarray) -> np.ndarray:
        r"""Return the posterior mean of :math:`1 / \sigma^2`, of the shape of `noise`."""

    @abc.abstractmethod
    def variance(self, moments: Moments, solved: Solved, noise: np.ndarray) -> np.ndarray:
        r"""Return the posterior mean of :math:`\sigma^2`, of the shape of `noise`."""

    @abc.abstractmethod
    def log_evidence(self, moments: Moments, solved: Solved, noise: np.ndarray) -> float:
        """Return log p(y | features), all constants included."""


class Normal(Family):
    r"""Normal weights with noise at one value: :math:`w \sim N(0, V)`, that is :math:`D = \sigma^2 V^{-1}`."""

    @property
    def integrates(self) -> bool:
        """False, as noise stays at its value."""
        return False

    def check(self, likelihood: Gaussian) -> None:
        """Accept any Gaussian likelihood."""

    def unit(self, noise: np.ndarray) -> np.ndarray:
        """Return `noise`."""
        return noise

    def precision(self, moments: Moments, solved: Solved, noise: np.ndarray) -> np.ndarray:
        """Return 1 / `noise`."""
        return 1.0 / noise

    def variance(self, moments: Moments, solved: Solved, noise: np.ndarray) -> np.ndarray:
        """Return `noise`."""
        return noise

    def log_evidence(self, moments: Moments, solved: Solved, noise: np.ndarray) -> float:
        """Return log p(y | features), y being multivariate normal."""
        terms = moments.num * np.log(2.0 * np.pi * noise) + solved.least / noise + solved.log_det
        return -0.5 * float(terms.sum())


class NormalInverseGamma(Family):
    r"""Unknown noise, integrated out together with the weights: y is Student's t.

    .. math::

        \sigma^2 \sim \text{InverseGamma}(a, b), \qquad w \mid \sigma^2 \sim N\big(0, \tfrac{\sigma^2}{b / a} V\big)

    so that the marginal prior of each weight is Student's t with 2a degrees of freedom and scale :math:`\sqrt V`. It
    replaces the likelihood's own prior on the noise. Outputs share :math:`\sigma^2` if the likelihood has one for all.

    Parameters
    ----------
    shape, rate
        a and b, in the units of y squared: b / a is the reciprocal of the mean of :math:`1 / \sigma^2`.
    """

    shape: float = eqx.field(default=1.0, converter=float)
    rate: float = eqx.field(default=0.1, converter=float)

    def __check_init__(self):
        if not (self.shape > 0 and self.rate > 0):
            raise InputError("shape and rate above 0", f"{self.shape} and {self.rate}", "Give positive numbers.")

    @property
    def integrates(self) -> bool:
        """True, as noise is integrated out."""
        return True

    def check(self, likelihood: Gaussian) -> None:
        """Raise InputError unless noise is unknown and its prior covers all positive scales."""
        priors = transforms.unknowns(likelihood.numbers)
        if not priors:
            raise InputError(
                "unknown noise, which conjugate.NormalInverseGamma integrates out",
                f"the known scale {likelihood.scale}",
                "Write likelihoods.Gaussian(dist.Gamma(0.5, 1.0)), or take conjugate.Normal().",
            )
        far = [jnp.full(priors[0].shape(), value) for value in (_FAR, 1.0 / _FAR)]
        if not all(jnp.all(priors[0].support(value)) for value in far):
            raise InputError(
                "a prior on noise over all positive numbers", repr(priors[0])[:60], "Use dist.Gamma or the like."
            )

    def unit(self, noise: np.ndarray) -> np.ndarray:
        """Return b / a."""
        return np.full(noise.shape, self.rate / self.shape)

    def updated(self, moments: Moments, solved: Solved, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r"""Return shape and rate of the posterior of :math:`\sigma^2`, each of the shape of `noise`."""
        least = solved.least.reshape(len(noise), -1)
        shape = np.full(noise.shape, self.shape + 0.5 * moments.num * least.shape[1])
        return shape, self.rate + 0.5 * least.sum(axis=1)

    def precision(self, moments: Moments, solved: Solved, noise: np.ndarray) -> np.ndarray:
        """Return the posterior's shape over its rate."""
        shape, rate = self.updated(moments, solved, noise)
        return shape / rate

    def variance(self, moments: Moments, solved: Solved, noise: np.ndarray) -> np.ndarray:
        """Return the posterior's rate / (shape - 1); infinite where the mean does not exist."""
        shape, rate = self.updated(moments, solved, noise)
        return np.where(shape > 1.0, rate / np.where(shape > 1.0, shape - 1.0, 1.0), np.inf)

    def log_evidence(self, moments: Moments, solved: Solved, noise: np.ndarray) -> float:
        """Return log p(y | features), y being multivariate Student's t."""
        shape, rate = self.updated(moments, solved, noise)
        terms = gammaln(shape) - gammaln(self.shape) + self.shape * np.log(self.rate) - shape * np.log(rate)
        constant = moments.num * len(solved.least) * np.log(2.0 * np.pi)
        return float(terms.sum() - 0.5 * solved.log_det.sum() - 0.5 * constant)


def variances(likelihood: Any, noise: PyTree) -> Array:
    """Return the noise variance at these unknowns: one, or one per output."""
    return jnp.atleast_1d(likelihood.sigma(noise)) ** 2
