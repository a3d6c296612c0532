"""The likelihood of counts whose variance equals their mean."""

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree
from tunbridge.model.likelihoods.base import Noiseless, OfCounts, diagonal


class Poisson(Noiseless, OfCounts):
    r"""Counts, :math:`p(y) = \lambda^y e^{-\lambda} / y!` with :math:`\log \lambda = f(x)`, one *f* per column of y.

    For counts over unequal times or areas wrap the network in `tunbridge.networks.Offset`. In float32 the log
    probability of a count of :math:`10^4` is accurate to 0.01, of :math:`10^5` to 0.1: use JAX's 64-bit mode for
    larger counts.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> float(Poisson().distribution(jnp.log(jnp.full((1, 1), 3.0))).mean[0, 0].round(4))
    3.0
    """

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        r"""Root of the Fisher information: diagonal, :math:`\sqrt\lambda`."""
        return diagonal(jnp.exp(0.5 * outputs))

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Poisson distribution with log rates from the outputs."""
        return dist.Poisson(jnp.exp(outputs), validate_args=False).to_event(1)
