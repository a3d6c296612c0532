r"""Independent weights with heavier tails than the normal: Laplace, logistic, Student-t, Cauchy.

The pull of a prior on a weight, :math:`-\frac{d}{dw} \log p(w)`, grows without bound under a normal, stays constant
under a Laplace, and falls back to zero under a Student-t: a large weight that the data call for is hardly shrunk.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.priors.base import Independent, as_scale

_NEAR = 0.03
"""Below this, three terms of the series of r / tanh(r / 2) have an error of less than 1e-13."""


def sum_log1p(terms: Array) -> Scalar:
    """Sum of log(1 + t) for t >= 0, with half as many logarithms: factors 1 + t are multiplied in pairs first."""
    flat = 1.0 + jnp.ravel(terms)
    half = flat.shape[0] // 2
    return jnp.sum(jnp.log(flat[:half] * flat[half : 2 * half])) + jnp.sum(jnp.log(flat[2 * half :]))


class Laplace(Independent):
    r"""Independent Laplace weights, :math:`p(w) = \frac{1}{2b} e^{-|w| / b}`.

    The prior of the lasso :cite:p:`tibshirani1996regression`. The posterior mode has
    exact zeros, which `tunbridge.MAP` finds; its draws never do :cite:p:`kaban2007bayesian`.

    Parameters
    ----------
    scale
        *b*, as for `Normal`; the standard deviation is :math:`b \sqrt 2`.
    """

    scale: Any = eqx.field(default=1.0, converter=as_scale)

    def law(self) -> Distribution:
        """Laplace distribution with b = 1."""
        return dist.Laplace(0.0, 1.0, validate_args=False)

    def em_variance(self, r: Array) -> Array:
        """Variance for a weight of scale 1: its absolute value, so 0 at 0."""
        return jnp.abs(r)

    def corners(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """One-sided derivative of -log p at its kink at 0: 1 / b per weight, or 1 where b is unknown (non-centred)."""
        leaf_scales = jax.tree.map(lambda _: 1.0, raw) if scales else self._deviations(raw, scales, layout)
        return jax.tree.map(lambda leaf, s: jnp.full_like(leaf, 1.0 / s), raw, leaf_scales)


class Logistic(Independent):
    r"""Independent logistic weights, :math:`p(w) = \frac{1}{4s} \text{sech}^2 \frac{w}{2s}`: a smooth Laplace.

    Parameters
    ----------
    scale
        *s*, as for `Normal`; the standard deviation is :math:`s \pi / \sqrt 3`.
    """

    scale: Any = eqx.field(default=1.0, converter=as_scale)

    def law(self) -> Distribution:
        """Logistic distribution with s = 1."""
        return dist.Logistic(0.0, 1.0, validate_args=False)

    def log_law(self, r: Array) -> Scalar:
        """Log density, summed over an array of weights with scale 1."""
        absolute = jnp.abs(r)
        return -jnp.sum(absolute + 2.0 * jnp.log(1.0 + jnp.exp(-absolute)))

    def em_variance(self, r: Array) -> Array:
        r"""Variance for a weight of scale 1: :math:`r / \tanh(r / 2)`, by its series near 0."""
        near = jnp.abs(r) < _NEAR
        safe = jnp.where(near, 1.0, r)
        return jnp.where(near, 2.0 + r * r * (1.0 / 6.0 - r * r / 360.0), safe / jnp.tanh(0.5 * safe))


class StudentT(Independent):
    r"""Independent Student-t weights, :math:`w = s \, t_\nu`: normal with an unknown variance integrated out.

    With :math:`\tau^2 \sim \text{InverseGamma}(a, b)` and :math:`w \sim N(0, \tau^2)`, :math:`\nu = 2a` and
    :math:`s = \sqrt{b / a}`; `ScaleMixture` keeps :math:`\tau` unknown instead.

    Parameters
    ----------
    df
        Degrees of freedom :math:`\nu`; the variance is finite above 2.
    scale
        *s*, as for `Normal`.
    """

    df: Any = eqx.field(default=3.0, converter=lambda df: transforms.check_number(df, "df"))
    scale: Any = eqx.field(default=1.0, converter=as_scale)

    def law(self) -> Distribution:
        """Student-t distribution of scale 1."""
        return dist.StudentT(self.df, 0.0, 1.0, validate_args=False)

    def log_law(self, r: Array) -> Scalar:
        """Log density, summed over an array of weights with scale 1."""
        half = 0.5 * (self.df + 1.0)
        top = gammaln(half) - gammaln(0.5 * self.df) - 0.5 * jnp.log(jnp.pi * self.df)
        return r.size * top - half * sum_log1p(r * r * (1.0 / self.df))

    def em_variance(self, r: Array) -> Array:
        r"""Variance for a weight of scale 1: :math:`(\nu + r^2) / (\nu + 1)`."""
        return (self.df + r * r) / (self.df + 1.0)


class Cauchy(Independent):
    r"""Independent Cauchy weights, :math:`p(w) = \frac{1}{\pi s (1 + w^2 / s^2)}`: Student-t with df 1.

    Wide networks with such output weights do not become Gaussian processes but stable ones :cite:p:`neal1996bayesian`.

    Parameters
    ----------
    scale
        *s*, as for `Normal`: half the distance between the quartiles.
    """

    scale: Any = eqx.field(default=1.0, converter=as_scale)

    def law(self) -> Distribution:
        """Cauchy distribution with s = 1."""
        return dist.Cauchy(0.0, 1.0, validate_args=False)

    def log_law(self, r: Array) -> Scalar:
        """Log density, summed over an array of weights with scale 1."""
        return -r.size * jnp.log(jnp.pi) - sum_log1p(r * r)

    def em_variance(self, r: Array) -> Array:
        r"""Variance for a weight of scale 1: :math:`(1 + r^2) / 2`."""
        return 0.5 * (1.0 + r * r)
