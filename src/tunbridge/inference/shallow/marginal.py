r"""The likelihood of a shallow network with its output weights integrated out, and how it changes with one column.

Given the hidden units the model is linear, :math:`y = Z c + \epsilon` with :math:`c \sim N(m, D)` and
:math:`\epsilon \sim N(0, \sigma^2)`. `log_marginal` is Lemma 2.1 of :cite:t:`mueller1998issues`, with the power of
:math:`2 \pi` that is missing there: it depends on the number of columns, so a sampler that changes that number would be
wrong without it.

The samplers work in whitened coordinates: the column of a weight is multiplied by the weight's prior standard
deviation and, like y, divided by the noise, so that :math:`c \sim N(m, I)` and the residual :math:`r = y - Z m` has
covariance :math:`I + Z Z^\top`. `Regression` holds inner products and the inverse of :math:`I + Z^\top Z`, nothing of
the length of the data. A column that is 0 adds nothing, so units that are left out are columns of zeros.
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


class Column(NamedTuple):
    """A further column z (points,), by its inner products."""

    cross: Array
    """With the columns of a regression, (columns,)."""
    square: Scalar
    """With itself."""
    target: Scalar
    """With y."""


class Regression(NamedTuple):
    """A linear regression in whitened coordinates, with the coefficients integrated out."""

    gram: Array
    r""":math:`Z^\top Z`, (columns, columns)."""
    targets: Array
    r""":math:`Z^\top y`, (columns,)."""
    shifts: Array
    """Prior means of the coefficients, (columns,)."""
    inverse: Array
    r""":math:`(I + Z^\top Z)^{-1}`, the covariance of the coefficients given y."""

    @classmethod
    def of(cls, gram: Array, targets: Array, shifts: Array) -> "Regression":
        """The regression on all columns, from a fresh factorisation."""
        identity = jnp.eye(gram.shape[0], dtype=gram.dtype)
        inverse = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(identity + gram), True), identity)
        return cls(gram, targets, shifts, inverse)

    @property
    def products(self) -> Array:
        r""":math:`Z^\top r`, (columns,)."""
        return self.targets - self.gram @ self.shifts

    def column(self, index: Array) -> Column:
        """One of the columns, as one to add once it is left out."""
        return Column(self.gram[index].at[index].set(0.0), self.gram[index, index], self.targets[index])

    def without(self, index: Array) -> "Regression":
        """The regression with one column set to 0."""
        row = self.inverse[index]
        rest = _cleared(self.inverse - jnp.outer(row, row) / row[index], index).at[index, index].set(1.0)
        return Regression(_cleared(self.gram, index), self.targets.at[index].set(0.0), self.shifts, rest)

    def gain(self, index: Array, z: Column) -> Scalar:
        r"""How much z adds to the log marginal likelihood as the column `index`, which is 0.

        With :math:`\langle a, b \rangle = a^\top (I + Z Z^\top)^{-1} b` and e the residual minus the column's mean,

        .. math:: -\tfrac12 \log (1 + \langle z, z \rangle) - \tfrac12 (\langle e, e \rangle - \langle r, r \rangle)
                  + \tfrac12 \langle z, e \rangle^2 / (1 + \langle z, z \rangle).
        """
        coefficients, shift = self.inverse @ z.cross, self.shifts[index]
        zz = z.square - z.cross @ coefficients  # by the Woodbury identity
        zr = z.target - z.cross @ self.shifts - coefficients @ self.products
        change = shift * (shift * zz - 2.0 * zr)
        return 0.5 * (jnp.square(zr - shift * zz) / (1.0 + zz) - jnp.log1p(zz) - change)

    def with_column(self, index: Array, z: Column) -> "Regression":
        """The regression with z as the column `index`, which is 0: a rank-one update."""
        coefficients = self.inverse @ z.cross
        direction = coefficients.at[index].add(-1.0)
        schur = 1.0 + z.square - z.cross @ coefficients
        inverse = self.inverse.at[index, index].add(-1.0) + jnp.outer(direction, direction) / schur
        whole = z.cross.at[index].set(z.square)
        gram = self.gram.at[index].set(whole).at[:, index].set(whole)
        return Regression(gram, self.targets.at[index].set(z.target), self.shifts, inverse)


def _cleared(matrix: Array, index: Array) -> Array:
    """The matrix with a row and the column of the same number set to 0."""
    return matrix.at[index].set(0.0).at[:, index].set(0.0)
