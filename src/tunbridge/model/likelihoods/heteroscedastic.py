"""The likelihood of real numbers with normal noise whose scale is another output of the network."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.likelihoods.base import Noiseless, OfNumbers, by_output, diagonal


class Heteroscedastic(Noiseless, OfNumbers):
    r"""Normal noise that varies with x, :math:`y \sim N(f(x), \sigma(x)^2)` :cite:p:`nix1994estimating`.

    The network has two outputs per column of y: first the means *f*, then :math:`s` with
    :math:`\sigma = \text{floor} + \log(1 + e^s)`. (An exponential would have infinite mean under Gaussian weights.)

    Parameters
    ----------
    floor
        Lower bound of :math:`\sigma`, in the units of y.
    """

    floor: Any = eqx.field(default=1e-3, converter=lambda floor: transforms.check_positive(floor, "floor"))

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs: two per column of y."""
        return 2 * y.shape[1]

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Normal distribution with mean and scale from the two halves of the outputs."""
        mean, s = jnp.split(outputs, 2, axis=-1)
        return dist.Normal(mean, self._sigma(s), validate_args=False).to_event(1)

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        r"""Root of the Fisher information: diagonal, :math:`1 / \sigma` for the means and
        :math:`\sqrt 2 \, \sigma'(s) / \sigma` for *s*.
        """
        _, s = jnp.split(outputs, 2, axis=-1)
        derivatives = jnp.concatenate([jnp.ones_like(s), math.sqrt(2.0) * jax.nn.sigmoid(s)], axis=-1)
        return diagonal(derivatives / jnp.tile(self._sigma(s), 2))

    def _sigma(self, s: Array) -> Array:
        return by_output(jnp.asarray(self.floor), s) + jax.nn.softplus(s)

    def in_units(self, scale: Array) -> "Heteroscedastic":
        """Return the same likelihood for y / scale, with the floor in the new units."""
        return Heteroscedastic(jnp.asarray(self.floor) / scale)
