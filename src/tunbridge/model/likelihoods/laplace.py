"""The likelihood of real numbers with two-sided exponential noise."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.likelihoods.base import OneScale, by_output, diagonal


class Laplace(OneScale):
    r"""Laplace noise, :math:`p(y) = \frac{1}{2b} e^{-|y - f(x)| / b}`, independent over outputs.

    Maximising it minimises absolute deviations: an outlier pulls on the fit as hard as any other point, and no harder.
    The standard deviation of the noise is :math:`\sqrt 2 \, b`.

    Parameters
    ----------
    scale
        *b*: a number, an array with one per output, or a numpyro distribution if it is unknown.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> float(Laplace(0.5).distribution(jnp.zeros((1, 1))).variance[0, 0])
    0.5
    """

    scale: Any = eqx.field(converter=lambda scale: transforms.check_positive(scale, "scale"))

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Laplace distribution around the outputs."""
        return dist.Laplace(outputs, by_output(jnp.asarray(self.values(noise)), outputs), validate_args=False).to_event(
            1
        )

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Root of the Fisher information: diagonal, 1 / scale."""
        return diagonal(1.0 / by_output(jnp.asarray(self.values(noise)), outputs))
