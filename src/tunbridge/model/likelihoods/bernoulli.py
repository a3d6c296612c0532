"""The likelihood of two classes."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree
from tunbridge.model.likelihoods.base import Noiseless, OfClasses


class Bernoulli(Noiseless, OfClasses):
    r"""Two classes, :math:`\log p(y) = y \log p + (1 - y) \log(1 - p)` with :math:`\text{logit}\, p = f(x)`."""

    def num_classes(self, y: Array) -> int:
        """Number of classes: always 2."""
        return 2

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs: one logit."""
        return 1

    def log_probs(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Log probability of both classes, (points, 2)."""
        return jnp.concatenate([jax.nn.log_sigmoid(-outputs), jax.nn.log_sigmoid(outputs)], axis=-1)

    def logits(self, mean: Array, covariance: Array, noise: PyTree = ()) -> tuple[Array, Array]:
        """Mean and covariance of both classes' logits, minus and plus half the output, if the output is normal."""
        side = jnp.array([-0.5, 0.5], mean.dtype)
        return mean * side[None], covariance * (side[:, None] * side[None])[None]

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        r"""Root of the Fisher information, :math:`\sqrt{p (1 - p)}`."""
        return jnp.exp(0.5 * (jax.nn.log_sigmoid(outputs) + jax.nn.log_sigmoid(-outputs)))[..., None]

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Distribution of the label, given its logit."""
        return dist.Bernoulli(logits=outputs[..., 0], validate_args=False)
