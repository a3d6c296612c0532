"""Priors that correlate a layer's weights over its inputs and over its outputs."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from tunbridge.core.declared import Module, as_floats
from tunbridge.core.errors import InputError
from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.networks import layout as axes
from tunbridge.model.priors.base import NORMAL, AbstractPrior, draw, total

_JITTER = 1e-6


def factor_of(covariance: Array) -> Array:
    """Lower Cholesky factor of a covariance, with jitter because it may be numerically singular."""
    size = covariance.shape[0]
    lift = _JITTER * jnp.trace(covariance) / size
    return jnp.linalg.cholesky(covariance + lift * jnp.eye(size, dtype=covariance.dtype))


def squared_distances(window: tuple[int, ...]) -> np.ndarray:
    """Squared distances between the positions of a window, in row-major order."""
    places = np.stack(np.meshgrid(*map(np.arange, window), indexing="ij"), axis=-1).reshape(-1, len(window))
    return ((places[:, None] - places[None]) ** 2).sum(-1).astype(float)


class Smooth(Module):
    r"""The covariance :math:`\exp(-(i - j)^2 / 2\ell^2)` of neighbours in a row, for any number of them.

    Parameters
    ----------
    length
        :math:`\ell`, in positions along the row.
    """

    length: Any = eqx.field(converter=lambda length: transforms.check_number(length, "length"))

    def __call__(self, num: int) -> Array:
        """Covariance matrix (num, num)."""
        return jnp.exp(-squared_distances((num,)) / (2.0 * self.length**2))


def _covariance(given: Any, name: str) -> Any:
    if given is None or callable(given) or isinstance(given, jax.core.Tracer):
        return given
    return check_covariance(given, name)


def check_covariance(given: Any, name: str) -> Array:
    """Return a covariance as an array; InputError unless it is square, symmetric and positive definite."""
    matrix = as_floats(given, name)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{name} as a square matrix", f"shape {matrix.shape}", "Give a covariance.")
    if not np.allclose(matrix, matrix.T, rtol=1e-5, atol=1e-8 * np.abs(matrix).max()):
        raise InputError(f"{name} as a symmetric matrix", "one that is not", "Give a covariance.")
    if not (least := np.linalg.eigvalsh(matrix)[0]) > 0:
        raise InputError(
            f"{name} with positive eigenvalues", f"{least:.3g} among them", "Add a little to its diagonal."
        )
    rounded = matrix.astype(jax.dtypes.canonicalize_dtype(float))
    return jnp.asarray(rounded, rounded.dtype)


class MatrixNormal(AbstractPrior):
    r"""Matrices of weights correlated over inputs and over outputs, :math:`W \sim MN(0, U, V)`.

    :math:`\text{cov}(W_{ij}, W_{kl}) = s^2 U_{ik} V_{jl}`: *U* runs over inputs, *V* over outputs, whatever the order
    in which the network stores them. With smooth *U* the first layer's features are smooth functions of neighbouring
    inputs. Biases and norms are independent, :math:`N(0, s^2)`.

    Parameters
    ----------
    inputs, outputs
        *U* and *V*: a covariance, a function of its size that returns it (`Smooth`), or None for the identity.
    scale
        *s*. (For an unknown one use `Hierarchical`.)

    Examples
    --------
    >>> from tunbridge import priors
    >>> prior = priors.ByPath({"layers/0/weight": priors.MatrixNormal(inputs=priors.Smooth(3.0))})
    """

    inputs: Any = eqx.field(default=None, converter=lambda given: _covariance(given, "inputs"))
    outputs: Any = eqx.field(default=None, converter=lambda given: _covariance(given, "outputs"))
    scale: Any = eqx.field(default=1.0, converter=lambda scale: transforms.check_number(scale, "scale"))
    roots: Any = eqx.field(default=None, kw_only=True)
    """Cholesky factors of U and V for each array of weights, once the prior is bound."""

    @property
    def gaussian(self) -> bool:
        """True, as the weights are normal."""
        return True

    def bind(self, weights: PyTree, layout: PyTree) -> "MatrixNormal":
        """Return the prior with its Cholesky factors; InputError unless the covariances have the layers' sizes."""
        axes.require_known(layout, "priors.MatrixNormal")
        for (path, leaf), role in zip(flatten_with_paths(weights), jax.tree.leaves(layout), strict=True):
            if role.role != "weight":
                continue
            rows, columns = _sizes(leaf, role)
            for name, given, size in (("inputs", self.inputs, rows), ("outputs", self.outputs, columns)):
                if given is not None and not callable(given) and given.shape[0] != size:
                    raise InputError(
                        f"{name}= of shape ({size}, {size}) for {path}",
                        f"shape {given.shape}",
                        "Give a function of the size, or use ByPath for one prior per layer.",
                    )
        return MatrixNormal(self.inputs, self.outputs, self.scale, roots=self._found(weights, layout))

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of all arrays: matrices, and independent biases and norms."""

        def log_prob_of_leaf(leaf: Array, role: axes.Leaf, roots: tuple[Array | None, Array | None]) -> Scalar:
            independent = dist.Normal(0.0, self.scale)
            if role.role != "weight" or roots == (None, None):
                return jnp.sum(independent.log_prob(leaf))
            matrix, (rows, columns) = _matrix(leaf, role) / self.scale, roots
            shift = -leaf.size * jnp.log(self.scale)
            if rows is None or columns is None:
                root, vectors = (rows, matrix.T) if columns is None else (columns, matrix)
                law = dist.MultivariateNormal(jnp.zeros(vectors.shape), scale_tril=root)
                return shift + jnp.sum(law.log_prob(vectors))
            return shift + dist.MatrixNormal(jnp.zeros(matrix.shape), rows, columns).log_prob(matrix)

        return total([log_prob_of_leaf(*row) for row in self._rows(raw, layout)])

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (weights, ()) from the prior."""

        def correlated(leaf: Array, role: axes.Leaf, roots: tuple[Array | None, Array | None]) -> Array:
            if role.role != "weight":
                return self.scale * leaf
            matrix, (rows, columns) = _matrix(leaf, role), roots
            matrix = matrix if rows is None else rows @ matrix
            return self.scale * _leaf(matrix if columns is None else matrix @ columns.T, leaf, role)

        leaves = [correlated(*row) for row in self._rows(draw(NORMAL, key, like), layout)]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), ()

    def _rows(self, tree: PyTree, layout: PyTree) -> list[tuple[Array, axes.Leaf, tuple[Array | None, Array | None]]]:
        """Each array, its role, and the Cholesky factors of its covariances."""
        roots = self._found(tree, layout) if self.roots is None else self.roots
        return list(zip(jax.tree.leaves(tree), jax.tree.leaves(layout), roots, strict=True))

    def _found(self, like: PyTree, layout: PyTree) -> tuple[tuple[Array | None, Array | None], ...]:
        """Cholesky factors of U and V for each array of weights; None for the identity."""

        def roots_of_leaf(leaf: Array, role: axes.Leaf) -> tuple[Array | None, Array | None]:
            if role.role != "weight":
                return None, None
            rows, columns = _sizes(leaf, role)
            return _root(self.inputs, rows), _root(self.outputs, columns)

        return tuple(roots_of_leaf(*row) for row in zip(jax.tree.leaves(like), jax.tree.leaves(layout), strict=True))


def _root(given: Array | Callable[[int], Array] | None, size: int) -> Array | None:
    if given is None:
        return None
    return factor_of(given(size)) if callable(given) else jnp.linalg.cholesky(given)


def _sizes(leaf: Array, role: axes.Leaf) -> tuple[int, int]:
    rows = math.prod(leaf.shape[axis] for axis in role.inputs + role.shared)
    return rows, math.prod(leaf.shape[axis] for axis in role.outputs)


def _matrix(leaf: Array, role: axes.Leaf) -> Array:
    """Reshape an array of weights to (inputs, outputs)."""
    return jnp.transpose(leaf, role.inputs + role.shared + role.outputs).reshape(_sizes(leaf, role))


def _leaf(matrix: Array, like: Array, role: axes.Leaf) -> Array:
    """The inverse of `_matrix`."""
    order = role.inputs + role.shared + role.outputs
    return jnp.transpose(matrix.reshape([like.shape[axis] for axis in order]), np.argsort(order).tolist())
