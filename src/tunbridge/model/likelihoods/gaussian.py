"""Numbers with normal noise of one scale."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.likelihoods.base import Noisy, OfNumbers, by_output, check_width


class Gaussian(Noisy, OfNumbers):
    r"""Normal noise, :math:`y \sim N(f(x), \sigma^2)`, independent over outputs.

    Parameters
    ----------
    scale
        :math:`\sigma`: a number, an array with one an output, or a numpyro distribution if it is unknown
        (``dist.Gamma(0.5, 1.0)``; ``.expand([outputs])`` for one an output).
    """

    scale: Any = eqx.field(converter=lambda scale: transforms.check_positive(scale, "scale"))

    @property
    def numbers(self) -> PyTree:
        """The scale."""
        return self.scale

    def num_outputs(self, y: Array) -> int:
        """One an output of y."""
        check_width(self.scale, "scale", y.shape[1])
        return y.shape[1]

    def sigma(self, noise: PyTree = ()) -> Array:
        """The noise scale at these unknowns."""
        return jnp.asarray(self.values(noise))

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Normal around the outputs."""
        return dist.Normal(outputs, by_output(self.sigma(noise), outputs)).to_event(1)

    def in_units(self, scale: Array) -> "Gaussian":
        """The same noise for y / scale; a prior refers to the new units as it stands."""
        return Gaussian(transforms.divided(self.scale, scale))
