"""Numbers with normal noise of one scale."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.likelihoods.base import OfNumbers


class Gaussian(OfNumbers):
    r"""Normal noise, :math:`y \sim N(f(x), \sigma^2)`, independent over outputs.

    Parameters
    ----------
    scale
        :math:`\sigma`: a number, an array with one an output, or a numpyro distribution if it is unknown
        (``dist.Gamma(0.5, 1.0)``; ``.expand([outputs])`` for one an output).
    """

    scale: Any = eqx.field(converter=lambda scale: transforms.check_positive(scale, "scale"))

    def num_outputs(self, y: Array) -> int:
        """One an output of y."""
        scales = transforms.unknowns(self.scale)
        shape = scales[0].shape() if scales else jnp.shape(self.scale)
        if shape not in ((), (1,), (y.shape[1],)):
            raise InputError(f"a scale of shape () or ({y.shape[1]},)", f"shape {shape}", "Give one, or one an output.")
        return y.shape[1]

    def sample_noise(self, key: Key) -> PyTree:
        """A draw of the unknown scale."""
        return transforms.sample(self.scale, key)

    def log_noise(self, noise: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log p(scale)."""
        return transforms.log_prob(self.scale, noise, jacobian=jacobian)

    def median_noise(self) -> PyTree:
        """The unknown scale at its prior's median."""
        return transforms.median(self.scale)

    def sigma(self, noise: PyTree = ()) -> Array:
        """The noise scale at these unknowns."""
        return jnp.asarray(transforms.values(self.scale, noise))

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Normal around the outputs."""
        sigma = jnp.broadcast_to(self.sigma(noise), outputs.shape[-1:])
        return dist.Normal(outputs, jnp.broadcast_to(sigma, outputs.shape)).to_event(1)

    def in_units(self, scale: Array) -> "Gaussian":
        """The same noise for y / scale; a prior refers to the new units as it stands."""
        return self if transforms.unknowns(self.scale) else Gaussian(jnp.asarray(self.scale) / scale)
