r"""Structured covariances of normal distributions, block by block, in units of the prior variances.

A block covers some elements of a long vector. With prior variances V and curvature H its precision is
:math:`V^{-1/2} (I + \tilde H) V^{-1/2}` with :math:`\tilde H = V^{1/2} H V^{1/2}`. The block stores the eigenvectors
and eigenvalues of :math:`\tilde H`, so that the determinant, draws and variances of linear functions need no inverse.
"""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from threadpoolctl import ThreadpoolController

from tunbridge.core.declared import Module
from tunbridge.core.types import Scalar

_ALONE = 1500
"""The largest matrix whose eigendecomposition is computed by a single thread."""


class Block(Module):
    """A normal distribution of some elements of a vector, independent of the other elements."""

    index: eqx.AbstractVar[Array]
    """Indices of the elements, in any shape."""
    uniform: bool = eqx.field(static=True, kw_only=True, default=True)
    """Whether prior variances other than V are V times one common factor."""

    @abc.abstractmethod
    def log_det(self, variances: Array, factor: Array) -> Scalar:
        """Log determinant of I + H~ for other prior variances, given for the whole vector, and H times a factor."""

    @abc.abstractmethod
    def root(self, z: Array) -> Array:
        """A square root of the covariance times z; z and the result have the shape of `index`."""

    @abc.abstractmethod
    def product(self, v: Array) -> Array:
        """The covariance times v; v and the result have the shape of `index`."""

    @abc.abstractmethod
    def diagonal(self) -> Array:
        """Variances of the elements, in the shape of `index`."""


class Diagonal(Block):
    """A block of independent elements: the precision is diagonal."""

    index: Array
    prior: Array
    """V, in the shape of `index`."""
    curvature: Array
    """The diagonal of H~."""

    def log_det(self, variances: Array, factor: Array) -> Scalar:
        """Sum of log(1 + factor h V' / V)."""
        return jnp.sum(jnp.log1p(factor * self.curvature * (variances[self.index] / self.prior)))

    def root(self, z: Array) -> Array:
        """The standard deviations times z."""
        return jnp.sqrt(self.diagonal()) * z

    def product(self, v: Array) -> Array:
        """The variances times v."""
        return self.diagonal() * v

    def diagonal(self) -> Array:
        """Variances V / (1 + h)."""
        return self.prior / (1.0 + self.curvature)


class Spectral(Block):
    r"""H~ as :math:`U \Lambda U^\top`, full or low rank; columns of U are orthonormal, and some may be zero."""

    index: Array
    scale: Array
    """The square root of V, (elements,)."""
    vectors: Array
    """U, (elements, rank)."""
    curvature: Array
    """The diagonal of Lambda, (rank,)."""

    @property
    def complete(self) -> bool:
        """Whether U is square."""
        return self.vectors.shape[0] == self.vectors.shape[1]

    def log_det(self, variances: Array, factor: Array) -> Scalar:
        """Computed from the eigenvalues where V changes by one factor, else from the Gram matrix of scaled vectors."""
        ratio = variances[self.index] / self.scale**2
        if self.uniform:
            return jnp.sum(jnp.log1p(factor * self.curvature * ratio[0]))
        rows = jnp.sqrt(ratio * factor)[:, None] * self.vectors * jnp.sqrt(self.curvature)[None]
        gram = jnp.eye(rows.shape[1], dtype=rows.dtype) + rows.T @ rows
        return 2.0 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(gram))))

    def root(self, z: Array) -> Array:
        r""":math:`V^{1/2} (I + \tilde H)^{-1/2} z`, where directions that U does not span keep their prior variance."""
        shrink = jax.lax.rsqrt(1.0 + self.curvature) - 1.0
        return self.scale * (z + self.vectors @ (shrink * (self.vectors.T @ z)))

    def product(self, v: Array) -> Array:
        """The covariance times v."""
        return self.scale * self._inverse(self.scale * v)

    def _inverse(self, u: Array) -> Array:
        coordinates = self.vectors.T @ u
        shrunk = coordinates / (1.0 + self.curvature)
        return self.vectors @ shrunk if self.complete else u + self.vectors @ (shrunk - coordinates)

    def covariance(self, rows: Array) -> Array:
        """Covariance (functions, functions) of the linear functions with these rows (functions, elements)."""
        scaled = rows * self.scale[None]
        coordinates = scaled @ self.vectors
        covariance = (coordinates / (1.0 + self.curvature)[None]) @ coordinates.T
        return covariance if self.complete else covariance + _gram_outside(scaled, coordinates)

    def diagonal(self) -> Array:
        """The diagonal of the covariance."""
        spread = 1.0 / (1.0 + self.curvature)
        squares = self.vectors**2
        outside = 0.0 if self.complete else jnp.maximum(1.0 - jnp.sum(squares, axis=1), 0.0)
        return self.scale**2 * (squares @ spread + outside)


def _gram_outside(scaled: Array, coordinates: Array) -> Array:
    """Gram matrix of the components of the rows outside the span of U; its diagonal is never negative."""
    gram = scaled @ scaled.T - coordinates @ coordinates.T
    return gram + jnp.diag(jnp.maximum(-jnp.diagonal(gram), 0.0))


class Kronecker(Block):
    r"""H~ as :math:`(Q_a \otimes Q_b) \Lambda (Q_a \otimes Q_b)^\top` on a weight matrix (inputs, outputs).

    Without correction :math:`\Lambda_{ij} = a_i b_j`, and H~ is the Kronecker product of two matrices. V is the product
    of a variance per row and a variance per column.
    """

    index: Array
    """(inputs, outputs)."""
    row_scale: Array
    """(inputs,): its outer product with `column_scale` is the square root of V."""
    column_scale: Array
    rows: Array
    """Q_a, (inputs, inputs)."""
    columns: Array
    """Q_b, (outputs, outputs)."""
    row_values: Array
    """a, (inputs,)."""
    column_values: Array
    """b, (outputs,)."""
    corrected: Array | None = None
    """Lambda (inputs, outputs) where it is corrected; None where it is the product of `row_values`, `column_values`."""

    @property
    def curvature(self) -> Array:
        """Lambda, (inputs, outputs)."""
        return self.row_values[:, None] * self.column_values[None] if self.corrected is None else self.corrected

    @property
    def spread(self) -> Array:
        """Variances along the eigenvectors, in units of V."""
        return 1.0 / (1.0 + self.curvature)

    def log_det(self, variances: Array, factor: Array) -> Scalar:
        """Computed from the eigenvalues where V changes by one factor, else from those of the rescaled factors."""
        prior_variances = variances[self.index]
        if self.uniform:
            ratio = prior_variances[0, 0] / (self.row_scale[0] * self.column_scale[0]) ** 2
            return jnp.sum(jnp.log1p(factor * ratio * self.curvature))
        row, column = (jnp.exp(0.5 * log_variance) for log_variance in separated(jnp.log(prior_variances)))
        a = _rescaled(self.rows, self.row_values, row / self.row_scale)
        b = _rescaled(self.columns, self.column_values, column / self.column_scale)
        return jnp.sum(jnp.log1p(factor * a[:, None] * b[None]))

    def root(self, z: Array) -> Array:
        """V^(1/2) times the eigenvectors times the standard deviations along them times z."""
        rotated = self.rows @ (jnp.sqrt(self.spread) * z) @ self.columns.T
        return self.row_scale[:, None] * rotated * self.column_scale[None]

    def product(self, v: Array) -> Array:
        """The covariance times v."""
        u = self.row_scale[:, None] * v * self.column_scale[None]
        rotated = self.rows @ (self.spread * (self.rows.T @ u @ self.columns)) @ self.columns.T
        return self.row_scale[:, None] * rotated * self.column_scale[None]

    def covariance(self, a: Array, g: Array) -> Array:
        r"""Covariance (functions, functions) of linear functions whose rows are :math:`\sum_p a_p g_{op}^\top`.

        `a` is (positions, inputs), `g` (functions, positions, outputs). With a single position no row is formed.
        """
        a = (a * self.row_scale[None]) @ self.rows
        g = (g * self.column_scale[None, None]) @ self.columns
        return kronecker_covariance(a, g, self.spread)

    def diagonal(self) -> Array:
        """The diagonal of the covariance."""
        variances = self.rows**2 @ self.spread @ (self.columns**2).T
        return self.row_scale[:, None] ** 2 * variances * self.column_scale[None] ** 2


def kronecker_covariance(a: Array, g: Array, spread: Array) -> Array:
    r"""Return :math:`\sum_{ij} s_{ij} T_{oij} T_{qij}`, axes o, q, with :math:`T_{oij} = \sum_p a_{pi} g_{opj}`."""
    if len(a) == 1:
        return (g[:, 0] * (a[0] ** 2 @ spread)[None]) @ g[:, 0].T
    rows = jnp.einsum("pi,opj->oij", a, g)
    return jnp.einsum("oij,qij->oq", rows * spread[None], rows)


def _rescaled(vectors: Array, values: Array, scale: Array) -> Array:
    """Eigenvalues of diag(scale) Q diag(values) Q^T diag(scale)."""
    root = scale[:, None] * vectors * jnp.sqrt(values)[None]
    return jnp.maximum(jnp.linalg.eigvalsh(root @ root.T), 0.0)


def separated(matrix: Any) -> tuple[Any, Any]:
    """Row terms and column terms whose sums approximate a matrix best in least squares, for instance log variances."""
    return matrix.mean(axis=1), matrix.mean(axis=0) - matrix.mean()


def eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of a symmetric matrix, in float64 whatever the precision of JAX.

    Matrices up to size 1,500 use one thread; see `few_threads`.
    """
    with few_threads(len(matrix)):
        return np.linalg.eigh(_symmetric(matrix))


def eigvalsh(matrix: np.ndarray) -> np.ndarray:
    """Eigenvalues of a symmetric matrix, as `eigh` computes them, in a fraction of the time."""
    with few_threads(len(matrix)):
        return np.linalg.eigvalsh(_symmetric(matrix))


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    matrix = np.asarray(matrix, np.float64)
    return 0.5 * (matrix + matrix.T)


def few_threads(num: int = 0) -> Any:
    """Context in which LAPACK, which JAX calls on CPUs too, uses one thread for matrices of size `num` up to 1,500.

    OpenBLAS threads wait for one another by spinning: where other work, such as other chains, shares the cores, the
    QR decomposition of 96 by 13 numbers takes 8 ms instead of 0.1 ms, and the eigenvalues of a matrix of size 350
    seconds instead of 50 ms.
    """
    return _threads().limit(limits=1 if num <= _ALONE else None)


@functools.cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


class Covariance(Module):
    """Covariance of a normal vector: independent blocks; elements outside all blocks have variance 0."""

    blocks: tuple[Block, ...]
    size: int = eqx.field(static=True)

    @property
    def num(self) -> int:
        """Number of elements that the blocks cover."""
        return sum(int(np.prod(block.index.shape)) for block in self.blocks)

    def sample(self, z: Array) -> Array:
        """A draw with mean 0 (size,), computed from standard normal draws z (size,)."""
        return self._each(lambda block, elements: block.root(elements), z)

    def product(self, v: Array) -> Array:
        """The covariance times v (size,)."""
        return self._each(lambda block, elements: block.product(elements), v)

    def diagonal(self) -> Array:
        """Variances (size,), 0 for elements outside all blocks."""
        variances = jnp.zeros(self.size)
        for block in self.blocks:
            variances = variances.at[block.index].set(block.diagonal().astype(variances.dtype))
        return variances

    def log_det(self, variances: Array, factor: Array) -> Scalar:
        """Log determinant of I + H~ for other prior variances (size,) and H times a factor."""
        return sum((block.log_det(variances, factor) for block in self.blocks), start=jnp.zeros(()))

    def _each(self, function: Callable[[Block, Array], Array], vector: Array) -> Array:
        result = jnp.zeros_like(vector)
        for block in self.blocks:
            result = result.at[block.index].set(function(block, vector[block.index]))
        return result
