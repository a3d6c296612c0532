"""`Predictive`: what every predictive distribution can be asked, and the one that a model's outputs make."""

import abc
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model
from tunbridge.predict.outputs import Outputs


class Predictive(abc.ABC):
    """A distribution over y at each of some points.

    Uncertainty is split by the law of total variance (numbers) or of total entropy (classes, in nats):
    `total` = `aleatoric` + `epistemic`, exactly. Aleatoric is what the noise would leave if the weights were known,
    epistemic what is due to not knowing them.
    """

    @property
    @abc.abstractmethod
    def mode(self) -> Array:
        """The most probable value."""

    @property
    @abc.abstractmethod
    def entropy(self) -> Array:
        """In nats."""

    @property
    @abc.abstractmethod
    def aleatoric(self) -> Array:
        """What the noise would leave if the weights were known."""

    @property
    @abc.abstractmethod
    def epistemic(self) -> Array:
        """What is due to not knowing the weights; never negative."""

    @property
    def total(self) -> Array:
        """aleatoric + epistemic."""
        return self.aleatoric + self.epistemic

    @property
    def mean(self) -> Array:
        """Expected y, (points, outputs)."""
        raise _undefined("a mean", "numbers", "Use .probs or .mode.")

    @property
    def variance(self) -> Array:
        """Variance of y, (points, outputs): the same as `total`."""
        raise _undefined("a variance", "numbers", "Use .entropy or .total.")

    @property
    def std(self) -> Array:
        """Standard deviation of y, (points, outputs)."""
        return jnp.sqrt(self.variance)

    @property
    def probs(self) -> Array:
        """Probability of each class, (points, classes)."""
        raise _undefined("class probabilities", "classes", "Use .mean, .std or .quantile.")

    def quantile(self, q: Any) -> Array:
        """Quantiles, (points, outputs); for several levels (levels, points, outputs)."""
        raise _undefined("quantiles", "numbers", "Use .probs.")

    def interval(self, mass: float = 0.9) -> tuple[Array, Array]:
        """The central interval that holds `mass`: lower and upper end, (points, outputs) each."""
        if not 0.0 < mass < 1.0:
            raise InputError("a mass between 0 and 1", f"{mass}", "Write 0.9 for 90 %.")
        lower, upper = self.quantile(np.array([0.5 - mass / 2, 0.5 + mass / 2]))
        return lower, upper

    def cdf(self, y: Any) -> Array:
        """P(Y <= y) an output, (..., points, outputs)."""
        raise _undefined("a distribution function", "numbers", "Use .probs.")

    @abc.abstractmethod
    def log_prob(self, y: Any) -> Array:
        """log p(y), (points,), of all outputs jointly."""

    @abc.abstractmethod
    def sample(self, key: Key, num: int) -> Array:
        """Draws of y, (num, points, ...). Each uses one network at all points."""


def push(model: Model, params: Params, x: np.ndarray) -> Predictive:
    """The predictive of a model with stacked parameters, equally weighted."""
    from tunbridge.predict.classes import ClassPredictive
    from tunbridge.predict.numbers import NumberPredictive

    outputs = Outputs(model, params, x)
    return ClassPredictive(outputs) if isinstance(model.likelihood, OfClasses) else NumberPredictive(outputs)


def _undefined(what: str, kind: str, do: str) -> InputError:
    return InputError(f"a predictive of {kind}, which has {what}", "one of another kind", do)
