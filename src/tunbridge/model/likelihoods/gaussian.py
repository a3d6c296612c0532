"""The likelihood of real numbers with normal noise of constant scale."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.likelihoods.base import OneScale, by_output, diagonal


class Gaussian(OneScale):
    r"""Normal noise, :math:`y \sim N(f(x), \sigma^2)`, independent over outputs.

    Parameters
    ----------
    scale
        :math:`\sigma`: a number, an array with one per output, or a numpyro distribution if it is unknown
        (``dist.Gamma(0.5, 1.0)``; ``.expand([outputs])`` for one per output).
    """

    scale: Any = eqx.field(converter=lambda scale: transforms.check_positive(scale, "scale"))

    def sigma(self, noise: PyTree = ()) -> Array:
        """Noise scale, given the unknowns."""
        return jnp.asarray(self.values(noise))

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Normal distribution around the outputs."""
        return dist.Normal(outputs, by_output(self.sigma(noise), outputs), validate_args=False).to_event(1)

    def noise_variance(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Variance of y given the outputs, (points, outputs)."""
        return jnp.broadcast_to(by_output(self.sigma(noise), outputs) ** 2, outputs.shape)

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Root of the Fisher information: diagonal, 1 / scale."""
        return diagonal(1.0 / by_output(jnp.asarray(self.values(noise)), outputs))
