"""The likelihood of real numbers with heavy-tailed noise."""

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
    hardly influence it. The variance of the noise is :math:`s^2 \nu / (\nu - 2)`, infinite for :math:`\nu \le 2`: a
    predictive then has infinite `total` and `aleatoric`, but its quantiles exist as usual. For :math:`\nu \le 1` the
    mean does not exist either, and the centre *f* is reported in its place.

    Parameters
    ----------
    df
        :math:`\nu`: a number, one per output, or a numpyro distribution if it is unknown.
    scale
        *s*: likewise; ``dist.Gamma(0.5, 1.0).expand([outputs])`` gives one unknown scale per output.

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
        """Degrees of freedom and scale, each a value or a prior."""
        return self.df, self.scale

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs: one per column of y."""
        check_width(self.df, "df", y.shape[1])
        check_width(self.scale, "scale", y.shape[1])
        return y.shape[1]

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Student's t distribution around the outputs."""
        df, scale = (by_output(jnp.asarray(value), outputs) for value in self.values(noise))
        return dist.StudentT(df, outputs, scale, validate_args=False).to_event(1)

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        r"""Root of the Fisher information: diagonal, :math:`\sqrt{(\nu + 1) / (\nu + 3)} / s`."""
        df, scale = (by_output(jnp.asarray(value), outputs) for value in self.values(noise))
        return diagonal(jnp.sqrt((df + 1.0) / (df + 3.0)) / scale)

    def in_units(self, scale: Array) -> "StudentT":
        """Return the same likelihood for y / scale; a prior is kept, and refers to the new units."""
        return StudentT(self.df, transforms.divided(self.scale, scale))
