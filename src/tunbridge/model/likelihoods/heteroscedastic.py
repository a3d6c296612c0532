"""Numbers with normal noise whose scale is another output of the network."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.likelihoods.base import Noiseless, OfNumbers


class Heteroscedastic(Noiseless, OfNumbers):
    r"""Normal noise that varies with x, :math:`y \sim N(f(x), \sigma(x)^2)` :cite:p:`nix1994estimating`.

    The network has two outputs for each of y's: first the means *f*, then :math:`s` with
    :math:`\sigma = \text{floor} + \log(1 + e^s)`. (An exponential would have infinite mean under Gaussian weights.)

    Parameters
    ----------
    floor
        The least :math:`\sigma`, in the units of y.
    """

    floor: Any = eqx.field(default=1e-3, converter=lambda floor: transforms.check_positive(floor, "floor"))

    def num_outputs(self, y: Array) -> int:
        """Two an output of y."""
        return 2 * y.shape[1]

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Normal with mean and scale from the two halves of the outputs."""
        mean, s = jnp.split(outputs, 2, axis=-1)
        return dist.Normal(mean, jnp.broadcast_to(self.floor, mean.shape[-1:])[None] + jax.nn.softplus(s)).to_event(1)

    def in_units(self, scale: Array) -> "Heteroscedastic":
        """The same with the floor in the new units."""
        return Heteroscedastic(jnp.asarray(self.floor) / scale)
