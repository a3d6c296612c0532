r"""The likelihood of a shallow network with its output weights integrated out, and how it changes with one column.

Given the hidden units the model is linear, :math:`y = Z c + \epsilon` with :math:`c \sim N(m, D)` and
:math:`\epsilon \sim N(0, \sigma^2)`. `log_marginal` is Lemma 2.1 of :cite:t:`mueller1998issues`, with the power of
:math:`2 \pi` that is missing there: it depends on the number of columns, so a sampler that changes that number would be
wrong without it.

The samplers work in whitened coordinates: the column of a weight is multiplied by the weight's prior standard deviation
and, like the residual :math:`y - Z m`, divided by the noise, so that :math:`c` is standard normal and the residual has
covariance :math:`I + Z Z^\top`. `Regression` holds the inverse of :math:`I + Z^\top Z`. A column that is 0 adds
nothing, so units that are left out are columns of zeros.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.types import Scalar


def log_marginal(y: Array, columns: Array, mean: Array, variance: Array, sigma: Array | float) -> Scalar:
    r"""Log density of y (points,) with the coefficients of the columns (points, columns) integrated out.

    .. math::

        \log p(y) = \log p(y \mid m_b) + \log p(m_b) - \log p(m_b \mid y),

    Bayes' theorem at the conditional mean :math:`m_b`, whose covariance is
    :math:`S_b = (D^{-1} + Z^\top Z / \sigma^2)^{-1}`.

    Parameters
    ----------
    y, columns
        Targets, and Z.
    mean, variance
        Means and variances of the independent normal priors of the coefficients, (columns,).
    sigma
        Standard deviation of the noise.
    """
    precision = jnp.diag(1.0 / variance) + columns.T @ columns / sigma**2
    root = jnp.linalg.cholesky(precision)
    fitted = mean + jax.scipy.linalg.cho_solve((root, True), columns.T @ (y - columns @ mean) / sigma**2)
    log_likelihood = jnp.sum(jax.scipy.stats.norm.logpdf(y, columns @ fitted, sigma))
    log_prior = jnp.sum(jax.scipy.stats.norm.logpdf(fitted, mean, jnp.sqrt(variance)))
    log_conditional = jnp.sum(jnp.log(jnp.diagonal(root))) - 0.5 * mean.size * jnp.log(2.0 * jnp.pi)
    return log_likelihood + log_prior - log_conditional


class Regression(NamedTuple):
    """A linear regression in whitened coordinates, with the coefficients integrated out."""

    columns: Array
    """Z, (points, columns)."""
    residual: Array
    """y minus its prior mean, (points,)."""
    inverse: Array
    r""":math:`(I + Z^\top Z)^{-1}`, the covariance of the coefficients given y."""

    @classmethod
    def of(cls, columns: Array, residual: Array) -> "Regression":
        """The regression on all columns, from a fresh factorisation."""
        identity = jnp.eye(columns.shape[1], dtype=columns.dtype)
        root = jnp.linalg.cholesky(identity + columns.T @ columns)
        return cls(columns, residual, jax.scipy.linalg.cho_solve((root, True), identity))

    def fitted(self, z: Array) -> Array:
        r""":math:`(I + Z^\top Z)^{-1} Z^\top z`: the coefficients of the columns that predict z (points,)."""
        return self.inverse @ (self.columns.T @ z)

    def without(self, index: Array, shift: Scalar) -> "Regression":
        """The regression with one column set to 0; `shift` is the prior mean of its whitened coefficient."""
        inverse, z = self.inverse, self.columns[:, index]
        row = inverse[index]
        unit = jnp.zeros_like(row).at[index].set(1.0)
        rest = (inverse - jnp.outer(row, row) / row[index]).at[index].set(0.0).at[:, index].set(0.0)
        return Regression(self.columns.at[:, index].set(0.0), self.residual + shift * z, rest + jnp.outer(unit, unit))

    def gain(self, z: Array, shift: Scalar) -> Scalar:
        r"""How much a further column z (points,) adds to the log marginal likelihood.

        With :math:`\langle a, b \rangle = a^\top (I + Z Z^\top)^{-1} b` and e the residual minus the column's mean,

        .. math:: -\tfrac12 \log (1 + \langle z, z \rangle) - \tfrac12 (\langle e, e \rangle - \langle r, r \rangle)
                  + \tfrac12 \langle z, e \rangle^2 / (1 + \langle z, z \rangle).
        """
        kept = z - self.columns @ self.fitted(z)  # (I + Z Z')^-1 z, by the Woodbury identity
        zz, zr = kept @ z, kept @ self.residual
        change = shift * (shift * zz - 2.0 * zr)
        return 0.5 * (jnp.square(zr - shift * zz) / (1.0 + zz) - jnp.log1p(zz) - change)

    def with_column(self, index: Array, z: Array, shift: Scalar) -> "Regression":
        """The regression with column `index`, which is 0, set to z: a rank-one update."""
        coefficients = self.fitted(z)
        direction = coefficients.at[index].add(-1.0)
        schur = 1.0 + z @ (z - self.columns @ coefficients)
        unit = jnp.zeros_like(coefficients).at[index].set(1.0)
        inverse = self.inverse - jnp.outer(unit, unit) + jnp.outer(direction, direction) / schur
        return Regression(self.columns.at[:, index].set(z), self.residual - shift * z, inverse)
