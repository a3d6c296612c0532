r"""Normal deviations with various covariance structures, :math:`R \varepsilon` with a root R of the covariance."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.random import normal, split
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.inference.vi.positive import inverse_softplus, softplus, sum_log

LOG_2PI = math.log(2.0 * math.pi)


class Spread(Module):
    """A zero-mean normal distribution of one array, or of several in one vector."""

    rho: eqx.AbstractVar[Array]
    """Scales before the softplus."""

    @abc.abstractmethod
    def noise(self, key: Key) -> PyTree:
        """Standard normal noise for one draw."""

    @abc.abstractmethod
    def root(self, noise: PyTree) -> Array:
        """Deviation that this noise gives."""

    def common(self, noise: PyTree) -> Array:
        """Part of the deviation that is correlated between entries."""
        return self.root(noise)

    def own(self) -> Array:
        """Standard deviation of the part that is independent between entries."""
        return jnp.zeros(())

    @abc.abstractmethod
    def log_prob(self, deviation: Array) -> Scalar:
        """Log density of a deviation."""

    @abc.abstractmethod
    def log_det(self) -> Scalar:
        """Log determinant of the covariance."""

    @abc.abstractmethod
    def variance(self) -> Array:
        """Variance of each entry."""

    @property
    def flat(self) -> bool:
        """Whether its deviations are one flat vector rather than an array in its own shape."""
        return False

    @property
    def num(self) -> int:
        """Number of entries."""
        return math.prod(self.rho.shape)

    @property
    def num_parameters(self) -> int:
        """Number of parameters."""
        return self.num

    def entropy(self) -> Scalar:
        """Entropy: minus the expected log density."""
        return 0.5 * (self.num * (1.0 + LOG_2PI) + self.log_det())


class Diagonal(Spread):
    r"""Independent entries with :math:`\sigma = \log(1 + e^\rho)`."""

    rho: Array

    @staticmethod
    def of(sds: Array) -> "Diagonal":
        """The spread with these standard deviations."""
        return Diagonal(inverse_softplus(sds))

    def noise(self, key: Key) -> Array:
        """One standard normal value per entry."""
        return normal(key, self.rho.shape, self.rho.dtype)

    def root(self, noise: Array) -> Array:
        r"""Deviation :math:`\sigma \varepsilon`."""
        return softplus(self.rho) * noise

    def common(self, noise: Array) -> Array:
        """Zeros: no part is correlated."""
        return jnp.zeros_like(self.rho)

    def own(self) -> Array:
        r"""Standard deviations :math:`\sigma`."""
        return softplus(self.rho)

    def log_prob(self, deviation: Array) -> Scalar:
        """Log density: a sum of normal log densities."""
        sigma = softplus(self.rho)
        return -0.5 * (jnp.sum(jnp.square(deviation / sigma)) + self.num * LOG_2PI) - sum_log(sigma)

    def log_det(self) -> Scalar:
        r"""Log determinant :math:`2 \sum \log \sigma`."""
        return 2.0 * sum_log(softplus(self.rho))

    def variance(self) -> Array:
        r"""Variances :math:`\sigma^2`."""
        return jnp.square(softplus(self.rho))


class Dense(Spread):
    r"""Any covariance :math:`L L^\top`, softplus on the diagonal of L."""

    rho: Array
    lower: Array
    """Only the part below the diagonal is used: L there, in the units of `triangular`."""

    @staticmethod
    def of(sds: Array) -> "Dense":
        """Uncorrelated entries to start from, with these standard deviations."""
        return Dense(inverse_softplus(sds), jnp.zeros((len(sds), len(sds)), sds.dtype))

    @property
    def flat(self) -> bool:
        """True, as it covers a flat vector."""
        return True

    @property
    def num_parameters(self) -> int:
        """Number of entries of L."""
        return triangle(self.num)

    def cholesky(self) -> Array:
        """The Cholesky factor L."""
        return triangular(self.rho, self.lower)

    def noise(self, key: Key) -> Array:
        """One standard normal value per entry."""
        return normal(key, self.rho.shape, self.rho.dtype)

    def root(self, noise: Array) -> Array:
        r"""Deviation :math:`L \varepsilon`."""
        return self.cholesky() @ noise

    def log_prob(self, deviation: Array) -> Scalar:
        """Log density, by a triangular solve."""
        white = jax.scipy.linalg.solve_triangular(self.cholesky(), deviation, lower=True)
        return -0.5 * (jnp.sum(jnp.square(white)) + self.num * LOG_2PI + self.log_det())

    def log_det(self) -> Scalar:
        """Log determinant, from the diagonal of L."""
        return 2.0 * sum_log(softplus(self.rho))

    def variance(self) -> Array:
        """Variances: squared norms of the rows of L."""
        return jnp.sum(jnp.square(self.cholesky()), axis=1)


class LowRankDiagonal(Spread):
    r"""Covariance :math:`S (I + U U^\top) S` with :math:`S = \text{diag}(\sigma)` and a few columns U."""

    rho: Array
    factors: Array
    """U, (entries, rank)."""

    @staticmethod
    def of(sds: Array, rank: int, key: Key) -> "LowRankDiagonal":
        """Nearly uncorrelated entries to start from: at U = 0 the gradient of U would be 0."""
        return LowRankDiagonal(inverse_softplus(sds), 0.01 * jax.random.normal(key, (len(sds), rank), sds.dtype))

    @property
    def flat(self) -> bool:
        """True, as it covers a flat vector."""
        return True

    @property
    def num_parameters(self) -> int:
        """Number of entries of the standard deviations and of U."""
        return self.num + math.prod(self.factors.shape)

    def noise(self, key: Key) -> tuple[Array, Array]:
        """One standard normal value per entry, and one per column of U."""
        key_each, key_columns = split(key, 2)
        columns = normal(key_columns, self.factors.shape[1:], self.rho.dtype)
        return normal(key_each, self.rho.shape, self.rho.dtype), columns

    def root(self, noise: tuple[Array, Array]) -> Array:
        r"""Deviation :math:`\sigma (\varepsilon_1 + U \varepsilon_2)`."""
        return self.own() * noise[0] + self.common(noise)

    def common(self, noise: tuple[Array, Array]) -> Array:
        r"""Correlated part of the deviation, :math:`\sigma \, U \varepsilon_2`."""
        return self.own() * (self.factors @ noise[1])

    def own(self) -> Array:
        r"""Standard deviations :math:`\sigma`."""
        return softplus(self.rho)

    def log_prob(self, deviation: Array) -> Scalar:
        """Log density, by Woodbury's identity."""
        white = deviation / self.own()
        projected = jax.scipy.linalg.solve_triangular(self._inner(), self.factors.T @ white, lower=True)
        square = jnp.sum(jnp.square(white)) - jnp.sum(jnp.square(projected))
        return -0.5 * (square + self.num * LOG_2PI + self.log_det())

    def log_det(self) -> Scalar:
        """Log determinant, by the matrix determinant lemma."""
        return 2.0 * (jnp.sum(jnp.log(self.own())) + jnp.sum(jnp.log(jnp.diag(self._inner()))))

    def variance(self) -> Array:
        """Variances of both parts together."""
        return jnp.square(self.own()) * (1.0 + jnp.sum(jnp.square(self.factors), axis=1))

    def _inner(self) -> Array:
        r"""Cholesky factor of :math:`I + U^\top U`."""
        u = self.factors
        return jnp.linalg.cholesky(jnp.eye(u.shape[1], dtype=u.dtype) + u.T @ u)


class MatrixVariate(Spread):
    r"""A matrix :math:`A E B^\top`: covariance :math:`B B^\top \otimes A A^\top` of its stacked columns."""

    rho: Array
    """Diagonal of A, before the softplus."""
    lower: Array
    """A below its diagonal, each row in units of its diagonal entry."""
    rho_columns: Array
    """Diagonal of B, before the softplus."""
    lower_columns: Array
    """B below its diagonal, each row in units of its diagonal entry."""
    shape: tuple[int, ...] = eqx.field(static=True)
    """Shape of the array of weights."""
    axes: tuple[int, ...] = eqx.field(static=True)
    """Axes of that array, inputs before outputs."""

    @staticmethod
    def of(sds: Array, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> "MatrixVariate":
        """Uncorrelated entries to start from, scaled by the geometric means of rows and columns."""
        axes = (*inputs, *outputs)
        width = math.prod(sds.shape[axis] for axis in outputs)
        logs = jnp.log(jnp.transpose(sds, axes).reshape(-1, width))
        whole = 0.5 * jnp.mean(logs)
        rows, columns = jnp.exp(jnp.mean(logs, 1) - whole), jnp.exp(jnp.mean(logs, 0) - whole)
        blank = [jnp.zeros((len(sd), len(sd)), sds.dtype) for sd in (rows, columns)]
        return MatrixVariate(
            inverse_softplus(rows), blank[0], inverse_softplus(columns), blank[1], tuple(sds.shape), axes
        )

    @property
    def num(self) -> int:
        """Number of entries."""
        return len(self.rho) * len(self.rho_columns)

    @property
    def num_parameters(self) -> int:
        """Number of entries of A and B."""
        return triangle(len(self.rho)) + triangle(len(self.rho_columns))

    def noise(self, key: Key) -> Array:
        """Standard normal matrix E."""
        return normal(key, (len(self.rho), len(self.rho_columns)), self.rho.dtype)

    def root(self, noise: Array) -> Array:
        r"""Deviation :math:`A E B^\top`, in the axis order of the weights."""
        rows, columns = self._roots()
        return self._back(rows @ noise @ columns.T)

    def log_prob(self, deviation: Array) -> Scalar:
        """Log density, by two triangular solves."""
        rows, columns = self._roots()
        matrix = jnp.transpose(deviation, self.axes).reshape(len(rows), len(columns))
        half = jax.scipy.linalg.solve_triangular(rows, matrix, lower=True)
        white = jax.scipy.linalg.solve_triangular(columns, half.T, lower=True)
        return -0.5 * (jnp.sum(jnp.square(white)) + self.num * LOG_2PI + self.log_det())

    def log_det(self) -> Scalar:
        """Log determinant: that of each root, times the number of rows of the other."""
        rows, columns = (jnp.sum(jnp.log(softplus(rho))) for rho in (self.rho, self.rho_columns))
        return 2.0 * (len(self.rho_columns) * rows + len(self.rho) * columns)

    def variance(self) -> Array:
        """Products of row and column variances, in the axis order of the weights."""
        rows, columns = (jnp.sum(jnp.square(root), axis=1) for root in self._roots())
        return self._back(rows[:, None] * columns[None])

    def _roots(self) -> tuple[Array, Array]:
        return triangular(self.rho, self.lower), triangular(self.rho_columns, self.lower_columns)

    def _back(self, matrix: Array) -> Array:
        tensor = matrix.reshape([self.shape[axis] for axis in self.axes])
        return jnp.transpose(tensor, [self.axes.index(axis) for axis in range(len(self.axes))])


def triangle(num: int) -> int:
    """Number of entries of a triangular matrix, its diagonal included."""
    return num * (num + 1) // 2


def triangular(rho: Array, lower: Array) -> Array:
    """Lower triangular matrix with softplus on its diagonal, and rows in units of it over the root of their length.

    One step size then serves whatever the units of a weight and however many weights there are: a step of Adam moves
    all entries of a row, most of them by noise alone.
    """
    below = jnp.tril(lower, -1) / math.sqrt(len(rho))
    return softplus(rho)[:, None] * (below + jnp.eye(len(rho), dtype=rho.dtype))
