r"""Precisions of normal distributions with a structure, block by block, in units of a prior's.

A block covers some numbers of a long vector. With prior variances V and curvature H its precision is
:math:`V^{-1/2} (I + \tilde H) V^{-1/2}` with :math:`\tilde H = V^{1/2} H V^{1/2}`, and is held by the eigenvectors and
eigenvalues of :math:`\tilde H`, so that the determinant, draws and variances of linear functions cost no inverse.
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
"""The largest matrix whose eigenvectors one thread finds."""


class Block(Module):
    """A normal distribution of some numbers of a vector, independent of the others."""

    index: eqx.AbstractVar[Array]
    """Which numbers, in any shape."""
    uniform: bool = eqx.field(static=True, kw_only=True, default=True)
    """Whether prior variances change by one common factor where they change."""

    @abc.abstractmethod
    def log_det(self, variances: Array, factor: Array) -> Scalar:
        """Log det of I + H~ with other prior variances, of the whole vector, and H times a factor."""

    @abc.abstractmethod
    def root(self, z: Array) -> Array:
        """A square root of the covariance times z, of the shape of `index`."""

    @abc.abstractmethod
    def product(self, v: Array) -> Array:
        """The covariance times v, of the shape of `index`."""

    @abc.abstractmethod
    def diagonal(self) -> Array:
        """Variances, of the shape of `index`."""


class Diagonal(Block):
    """Independent numbers."""

    index: Array
    prior: Array
    """V, of the shape of `index`."""
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
        """V / (1 + h)."""
        return self.prior / (1.0 + self.curvature)


class Spectral(Block):
    r"""H~ as :math:`U \Lambda U^\top` with orthonormal columns U, all of them or the leading ones and some of zeros."""

    index: Array
    scale: Array
    """The root of V, (numbers,)."""
    vectors: Array
    """U, (numbers, rank)."""
    curvature: Array
    """The diagonal of Lambda, (rank,)."""

    @property
    def complete(self) -> bool:
        """Whether U is square."""
        return self.vectors.shape[0] == self.vectors.shape[1]

    def log_det(self, variances: Array, factor: Array) -> Scalar:
        """From the eigenvalues where V changes by a factor, else from the Gram matrix of the scaled vectors."""
        ratio = variances[self.index] / self.scale**2
        if self.uniform:
            return jnp.sum(jnp.log1p(factor * self.curvature * ratio[0]))
        rows = jnp.sqrt(ratio * factor)[:, None] * self.vectors * jnp.sqrt(self.curvature)[None]
        gram = jnp.eye(rows.shape[1], dtype=rows.dtype) + rows.T @ rows
        return 2.0 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(gram))))

    def root(self, z: Array) -> Array:
        r""":math:`V^{1/2} (I + \tilde H)^{-1/2} z`, without leaving what U does not span."""
        shrink = jax.lax.rsqrt(1.0 + self.curvature) - 1.0
        return self.scale * (z + self.vectors @ (shrink * (self.vectors.T @ z)))

    def product(self, v: Array) -> Array:
        """The covariance times v."""
        return self.scale * self._inverse(self.scale * v)

    def _inverse(self, u: Array) -> Array:
        inside = self.vectors.T @ u
        spread = inside / (1.0 + self.curvature)
        return self.vectors @ spread if self.complete else u + self.vectors @ (spread - inside)

    def covariance(self, rows: Array) -> Array:
        """Of linear functions with these rows (functions, numbers), (functions, functions)."""
        scaled = rows * self.scale[None]
        inside = scaled @ self.vectors
        found = (inside / (1.0 + self.curvature)[None]) @ inside.T
        return found if self.complete else found + _outside(scaled, inside)

    def diagonal(self) -> Array:
        """The diagonal of the covariance."""
        spread = 1.0 / (1.0 + self.curvature)
        squares = self.vectors**2
        outside = 0.0 if self.complete else jnp.maximum(1.0 - jnp.sum(squares, axis=1), 0.0)
        return self.scale**2 * (squares @ spread + outside)


def _outside(scaled: Array, inside: Array) -> Array:
    """The Gram matrix of what lies outside a space, its diagonal never negative."""
    gram = scaled @ scaled.T - inside @ inside.T
    return gram + jnp.diag(jnp.maximum(-jnp.diagonal(gram), 0.0))


class Kronecker(Block):
    r"""H~ as :math:`(Q_a \otimes Q_b) \Lambda (Q_a \otimes Q_b)^\top` on a matrix of numbers (inputs, outputs).

    Without correction :math:`\Lambda_{ij} = a_i b_j`, and H~ is the Kronecker product of two matrices. V is the product
    of a variance per row and one per column.
    """

    index: Array
    """(inputs, outputs)."""
    row_scale: Array
    """(inputs,): with `column_scale` the root of V."""
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
    """Lambda, where it is not the product."""

    @property
    def curvature(self) -> Array:
        """Lambda, (inputs, outputs)."""
        return self.row_values[:, None] * self.column_values[None] if self.corrected is None else self.corrected

    @property
    def spread(self) -> Array:
        """Variances along the eigenvectors, in units of V."""
        return 1.0 / (1.0 + self.curvature)

    def log_det(self, variances: Array, factor: Array) -> Scalar:
        """From the eigenvalues where V changes by a factor, else from those of the rescaled factors."""
        chosen = variances[self.index]
        if self.uniform:
            ratio = chosen[0, 0] / (self.row_scale[0] * self.column_scale[0]) ** 2
            return jnp.sum(jnp.log1p(factor * ratio * self.curvature))
        row, column = (jnp.exp(0.5 * one) for one in separated(jnp.log(chosen)))
        a = _rescaled(self.rows, self.row_values, row / self.row_scale)
        b = _rescaled(self.columns, self.column_values, column / self.column_scale)
        return jnp.sum(jnp.log1p(factor * a[:, None] * b[None]))

    def root(self, z: Array) -> Array:
        """Scaled eigenvectors times z times the root of their variances."""
        turned = self.rows @ (jnp.sqrt(self.spread) * z) @ self.columns.T
        return self.row_scale[:, None] * turned * self.column_scale[None]

    def product(self, v: Array) -> Array:
        """The covariance times v."""
        u = self.row_scale[:, None] * v * self.column_scale[None]
        turned = self.rows @ (self.spread * (self.rows.T @ u @ self.columns)) @ self.columns.T
        return self.row_scale[:, None] * turned * self.column_scale[None]

    def covariance(self, a: Array, g: Array) -> Array:
        r"""Of linear functions whose rows are :math:`\sum_p a_p g_{op}^\top`, (functions, functions).

        `a` is (positions, inputs), `g` (functions, positions, outputs): no row is built where there is one position.
        """
        a = (a * self.row_scale[None]) @ self.rows
        g = (g * self.column_scale[None, None]) @ self.columns
        return kronecker_covariance(a, g, self.spread)

    def diagonal(self) -> Array:
        """The diagonal of the covariance."""
        inside = self.rows**2 @ self.spread @ (self.columns**2).T
        return self.row_scale[:, None] ** 2 * inside * self.column_scale[None] ** 2


def kronecker_covariance(a: Array, g: Array, spread: Array) -> Array:
    r""":math:`\sum_{ij} s_{ij} T_{oij} T_{qij}` with :math:`T_{oij} = \sum_p a_{pi} g_{opj}`."""
    if len(a) == 1:
        return (g[:, 0] * (a[0] ** 2 @ spread)[None]) @ g[:, 0].T
    rows = jnp.einsum("pi,opj->oij", a, g)
    return jnp.einsum("oij,qij->oq", rows * spread[None], rows)


def _rescaled(vectors: Array, values: Array, scale: Array) -> Array:
    """Eigenvalues of diag(scale) Q diag(values) Q^T diag(scale)."""
    half = scale[:, None] * vectors * jnp.sqrt(values)[None]
    return jnp.maximum(jnp.linalg.eigvalsh(half @ half.T), 0.0)


def separated(matrix: Any) -> tuple[Any, Any]:
    """A number per row and one per column whose sum is nearest to a matrix: of logarithms of variances, say."""
    return matrix.mean(axis=1), matrix.mean(axis=0) - matrix.mean()


def eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of a symmetric matrix, in float64 whatever the precision of JAX.

    Up to some size on one thread: those of OpenBLAS wait for one another by spinning, and where other work shares the
    cores a matrix of 350 takes seconds instead of 50 ms.
    """
    with _few_threads(len(matrix)):
        return np.linalg.eigh(_symmetric(matrix))


def eigvalsh(matrix: np.ndarray) -> np.ndarray:
    """The eigenvalues alone, as `eigh` gives them, in a fraction of the time."""
    with _few_threads(len(matrix)):
        return np.linalg.eigvalsh(_symmetric(matrix))


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    matrix = np.asarray(matrix, np.float64)
    return 0.5 * (matrix + matrix.T)


def _few_threads(num: int) -> Any:
    return _threads().limit(limits=1 if num <= _ALONE else None)


@functools.cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


class Covariance(Module):
    """The normal distribution of a long vector around 0: blocks, and numbers that are known where there is none."""

    blocks: tuple[Block, ...]
    size: int = eqx.field(static=True)

    @property
    def num(self) -> int:
        """How many numbers are not known."""
        return sum(int(np.prod(block.index.shape)) for block in self.blocks)

    def sample(self, z: Array) -> Array:
        """A draw, from standard normal numbers (size,)."""
        return self._each(lambda block, own: block.root(own), z)

    def product(self, v: Array) -> Array:
        """The covariance times v (size,)."""
        return self._each(lambda block, own: block.product(own), v)

    def diagonal(self) -> Array:
        """Variances (size,), 0 of what is known."""
        found = jnp.zeros(self.size)
        for block in self.blocks:
            found = found.at[block.index].set(block.diagonal().astype(found.dtype))
        return found

    def log_det(self, variances: Array, factor: Array) -> Scalar:
        """Log det of I + H~ with other prior variances (size,) and H times a factor."""
        return sum((block.log_det(variances, factor) for block in self.blocks), start=jnp.zeros(()))

    def _each(self, function: Callable[[Block, Array], Array], vector: Array) -> Array:
        found = jnp.zeros_like(vector)
        for block in self.blocks:
            found = found.at[block.index].set(function(block, vector[block.index]))
        return found
