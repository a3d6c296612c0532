"""Numbers with two-sided exponential noise."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.likelihoods.base import Noisy, OfNumbers, by_output, check_width


class Laplace(Noisy, OfNumbers):
    r"""Laplace noise, :math:`p(y) = \frac{1}{2b} e^{-|y - f(x)| / b}`, independent over outputs.

    Its mode is the least absolute deviation: an outlier pulls as hard as any other point, and no harder. The standard
    deviation of the noise is :math:`\sqrt 2 \, b`.

    Parameters
    ----------
    scale
        *b*: a number, an array with one an output, or a numpyro distribution if it is unknown.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> float(Laplace(0.5).distribution(jnp.zeros((1, 1))).variance[0, 0])
    0.5
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

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Laplace around the outputs."""
        return dist.Laplace(outputs, by_output(jnp.asarray(self.values(noise)), outputs)).to_event(1)

    def in_units(self, scale: Array) -> "Laplace":
        """The same noise for y / scale; a prior refers to the new units as it stands."""
        return Laplace(transforms.divided(self.scale, scale))
