"""Several classes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.likelihoods.base import Noisy, OfClasses, check_classes, counted


class Categorical(Noisy, OfClasses):
    r"""Several classes, :math:`p(y = c) = \text{softmax}(f(x) / \tau)_c`.

    Parameters
    ----------
    classes
        How many there are; None counts the labels: the largest plus one.
    temperature
        :math:`\tau`: a number, or a numpyro distribution if it is unknown. Point methods measure an unknown one on
        rows held out, as they measure noise; among the tasks of `MultiTask` it is the weight that this one learns
        :cite:p:`kendall2018multitask`.
    """

    classes: int | None = eqx.field(default=None, static=True)
    temperature: Any = eqx.field(default=1.0, converter=lambda value: transforms.check_positive(value, "temperature"))

    def __check_init__(self):
        check_classes(self.classes)

    @property
    def numbers(self) -> PyTree:
        """The temperature."""
        return self.temperature

    def num_classes(self, y: Array) -> int:
        """As said, or the largest label plus one."""
        return counted(self.classes, y)

    def num_outputs(self, y: Array) -> int:
        """One logit per class."""
        return self.num_classes(y)

    def with_outputs(self, num: int) -> "Categorical":
        """The same for so many classes."""
        return Categorical(num, self.temperature)

    def log_probs(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Of each class, (points, classes)."""
        return jax.nn.log_softmax(self._logits(outputs, noise), axis=-1)

    def logits(self, mean: Array, covariance: Array, noise: PyTree = ()) -> tuple[Array, Array]:
        """Mean and covariance of the logits, the outputs by the temperature, where they are normal."""
        heat = jnp.asarray(self.values(noise), mean.dtype)
        return mean / heat, covariance / heat**2

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        r"""A column per class, :math:`\sqrt{p_c} (e_c - p) / \tau`."""
        log_probs = self.log_probs(outputs, noise)
        away = jnp.eye(outputs.shape[-1], dtype=outputs.dtype)[None] - jnp.exp(log_probs)[..., None]
        return away * jnp.exp(0.5 * log_probs)[..., None, :] / jnp.asarray(self.values(noise), outputs.dtype)

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Of the label, from the logits."""
        return dist.Categorical(logits=self._logits(outputs, noise), validate_args=False)

    def _logits(self, outputs: Array, noise: PyTree) -> Array:
        return outputs / jnp.asarray(self.values(noise), outputs.dtype)
