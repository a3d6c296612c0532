"""Correlated weights of a layer: over its inputs and over its outputs."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.networks import layout as axes
from tunbridge.model.priors.base import NORMAL, AbstractPrior, draw, total

_JITTER = 1e-6


def factor_of(covariance: Array) -> Array:
    """The lower root of a covariance, which may be singular to rounding."""
    size = covariance.shape[0]
    lift = _JITTER * jnp.trace(covariance) / size
    return jnp.linalg.cholesky(covariance + lift * jnp.eye(size, dtype=covariance.dtype))


def squared_distances(window: tuple[int, ...]) -> np.ndarray:
    """Between the positions of a window, row after row."""
    places = np.stack(np.meshgrid(*map(np.arange, window), indexing="ij"), axis=-1).reshape(-1, len(window))
    return ((places[:, None] - places[None]) ** 2).sum(-1).astype(float)


class Smooth(eqx.Module):
    r"""The covariance :math:`\exp(-(i - j)^2 / 2\ell^2)` of neighbours in a row, for so many as are asked for.

    Parameters
    ----------
    length
        :math:`\ell`, in places.
    """

    length: Any = eqx.field(converter=lambda length: transforms.check_number(length, "length"))

    def __call__(self, num: int) -> Array:
        """The matrix (num, num)."""
        return jnp.exp(-squared_distances((num,)) / (2.0 * self.length**2))


def _covariance(given: Any, name: str) -> Any:
    if given is None or callable(given) or isinstance(given, jax.core.Tracer):
        return given
    return check_covariance(given, name)


def check_covariance(given: Any, name: str) -> Array:
    """A covariance as an array; InputError unless it is square, symmetric and positive definite."""
    matrix = np.asarray(given, float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{name} as a square matrix", f"shape {matrix.shape}", "Give a covariance.")
    if not np.allclose(matrix, matrix.T, rtol=1e-5, atol=1e-8 * np.abs(matrix).max()):
        raise InputError(f"{name} as a symmetric matrix", "one that is not", "Give a covariance.")
    if not (least := np.linalg.eigvalsh(matrix)[0]) > 0:
        raise InputError(
            f"{name} with positive eigenvalues", f"{least:.3g} among them", "Add a little to its diagonal."
        )
    return jnp.asarray(matrix)


class MatrixNormal(AbstractPrior):
    r"""Matrices of weights correlated over inputs and over outputs, :math:`W \sim MN(0, U, V)`.

    :math:`\text{cov}(W_{ij}, W_{kl}) = s^2 U_{ik} V_{jl}`: *U* runs over inputs, *V* over outputs, whatever the order
    in which the network stores them. With smooth *U* the first layer's features are smooth functions of neighbouring
    inputs. Biases and norms are independent, :math:`N(0, s^2)`.

    Parameters
    ----------
    inputs, outputs
        *U* and *V*: a covariance, or a function of their size that gives it (`Smooth`), or None for the identity.
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

    @property
    def gaussian(self) -> bool:
        """Yes."""
        return True

    def bind(self, weights: PyTree, layout: PyTree) -> "MatrixNormal":
        """Itself, where the covariances have the sizes of the layers."""
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
                        "Give a function of the size, or use ByPath for one prior a layer.",
                    )
        return self

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of all matrices, and of the rest."""

        def one(leaf: Array, role: axes.Leaf) -> Scalar:
            if role.role != "weight":
                return jnp.sum(dist.Normal(0.0, self.scale).log_prob(leaf))
            return dist.MatrixNormal(jnp.zeros(_sizes(leaf, role)), *self._roots(leaf, role)).log_prob(
                _matrix(leaf, role)
            )

        return total(jax.tree.map(one, raw, layout))

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """A draw of the weights."""

        def one(leaf: Array, role: axes.Leaf) -> Array:
            if role.role != "weight":
                return self.scale * leaf
            rows, columns = self._roots(leaf, role)
            return _leaf(rows @ _matrix(leaf, role) @ columns.T, leaf, role)

        return jax.tree.map(one, draw(NORMAL, key, like), layout), ()

    def _roots(self, leaf: Array, role: axes.Leaf) -> tuple[Array, Array]:
        rows, columns = _sizes(leaf, role)
        return self.scale * _root(self.inputs, rows), _root(self.outputs, columns)


def _root(given: Array | Callable[[int], Array] | None, size: int) -> Array:
    if given is None:
        return jnp.eye(size)
    return factor_of(given(size)) if callable(given) else jnp.linalg.cholesky(given)


def _sizes(leaf: Array, role: axes.Leaf) -> tuple[int, int]:
    rows = math.prod(leaf.shape[axis] for axis in role.inputs + role.shared)
    return rows, math.prod(leaf.shape[axis] for axis in role.outputs)


def _matrix(leaf: Array, role: axes.Leaf) -> Array:
    """(inputs, outputs)."""
    return jnp.transpose(leaf, role.inputs + role.shared + role.outputs).reshape(_sizes(leaf, role))


def _leaf(matrix: Array, like: Array, role: axes.Leaf) -> Array:
    """The inverse of `_matrix`."""
    order = role.inputs + role.shared + role.outputs
    return jnp.transpose(matrix.reshape([like.shape[axis] for axis in order]), np.argsort(order).tolist())
