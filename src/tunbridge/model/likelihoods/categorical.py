"""The likelihood of several classes."""

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
        Number of classes; None takes the largest label plus one.
    temperature
        :math:`\tau`: a number, or a numpyro distribution if it is unknown. Point methods estimate an unknown one on
        held-out rows, as they do noise; in a `MultiTask` it is the learnt weight of this task
        :cite:p:`kendall2018multitask`.
    """

    classes: int | None = eqx.field(default=None, static=True)
    temperature: Any = eqx.field(default=1.0, converter=lambda value: transforms.check_positive(value, "temperature"))

    def __check_init__(self):
        check_classes(self.classes)

    @property
    def numbers(self) -> PyTree:
        """The temperature, a value or a prior."""
        return self.temperature

    def num_classes(self, y: Array) -> int:
        """Number of classes: `classes` if given, else the largest label plus one."""
        return counted(self.classes, y)

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs: one logit per class."""
        return self.num_classes(y)

    def with_outputs(self, num: int) -> "Categorical":
        """Return the same likelihood with `num` classes."""
        return Categorical(num, self.temperature)

    def log_probs(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Log probability of each class, (points, classes)."""
        return jax.nn.log_softmax(self._logits(outputs, noise), axis=-1)

    def logits(self, mean: Array, covariance: Array, noise: PyTree = ()) -> tuple[Array, Array]:
        """Mean and covariance of the logits, outputs divided by the temperature, if the outputs are normal."""
        tau = jnp.asarray(self.values(noise), mean.dtype)
        return mean / tau, covariance / tau**2

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        r"""Root of the Fisher information, with a column :math:`\sqrt{p_c} (e_c - p) / \tau` per class."""
        log_probs = self.log_probs(outputs, noise)
        residuals = jnp.eye(outputs.shape[-1], dtype=outputs.dtype)[None] - jnp.exp(log_probs)[..., None]
        return residuals * jnp.exp(0.5 * log_probs)[..., None, :] / jnp.asarray(self.values(noise), outputs.dtype)

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Distribution of the label, given the outputs."""
        return dist.Categorical(logits=self._logits(outputs, noise), validate_args=False)

    def _logits(self, outputs: Array, noise: PyTree) -> Array:
        return outputs / jnp.asarray(self.values(noise), outputs.dtype)
