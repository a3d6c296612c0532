"""Numbers with noise of heavy tails."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.likelihoods.base import Noisy, OfNumbers, by_output, check_width, diagonal


class StudentT(Noisy, OfNumbers):
    r"""Student's t noise, :math:`(y - f(x)) / s \sim t_\nu`, independent over outputs :cite:p:`lange1989robust`.

    The pull of a residual *r* on the fit, :math:`(\nu + 1) r / (\nu s^2 + r^2)`, falls again for large ones: outliers
    are left alone. The variance of the noise is :math:`s^2 \nu / (\nu - 2)`, infinite for :math:`\nu \le 2`: a
    predictive then has infinite `total` and `aleatoric`, and quantiles as ever. For :math:`\nu \le 1` there is no mean
    either, and the centre *f* stands for it.

    Parameters
    ----------
    df
        :math:`\nu`: a number, one per output, or a numpyro distribution if it is unknown.
    scale
        *s*: likewise; ``dist.Gamma(0.5, 1.0).expand([outputs])`` is an unknown one per output.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> float(StudentT(4.0, 1.0).distribution(jnp.zeros((1, 1))).variance[0, 0])
    2.0
    """

    df: Any = eqx.field(converter=lambda df: transforms.check_positive(df, "df"))
    scale: Any = eqx.field(converter=lambda scale: transforms.check_positive(scale, "scale"))

    @property
    def numbers(self) -> PyTree:
        """Degrees of freedom and scale."""
        return self.df, self.scale

    def num_outputs(self, y: Array) -> int:
        """One per output of y."""
        check_width(self.df, "df", y.shape[1])
        check_width(self.scale, "scale", y.shape[1])
        return y.shape[1]

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Student's t around the outputs."""
        df, scale = (by_output(jnp.asarray(value), outputs) for value in self.values(noise))
        return dist.StudentT(df, outputs, scale, validate_args=False).to_event(1)

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        r"""Diagonal, :math:`\sqrt{(\nu + 1) / (\nu + 3)} / s`."""
        df, scale = (by_output(jnp.asarray(value), outputs) for value in self.values(noise))
        return diagonal(jnp.sqrt((df + 1.0) / (df + 3.0)) / scale)

    def in_units(self, scale: Array) -> "StudentT":
        """The same noise for y / scale; a prior refers to the new units as it stands."""
        return StudentT(self.df, transforms.divided(self.scale, scale))
