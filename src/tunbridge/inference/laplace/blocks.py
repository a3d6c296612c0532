"""Blocks of a covariance from eigenvectors in units of the prior, and remarks on what was approximated."""

from typing import NamedTuple

import jax
import numpy as np

from tunbridge.core import linalg
from tunbridge.core.linalg import Block
from tunbridge.inference.laplace.local import Part

_NEGLIGIBLE = 1e-12
"""Eigenvalues below this share of the largest are rounding errors."""


class Facts(NamedTuple):
    """Remarks on the approximations made in building blocks."""

    least: float = 0.0
    """The smallest eigenvalue before negative ones were clipped, in units of the prior precision."""
    clipped: int = 0
    """Number of negative eigenvalues."""
    inseparable: float = 0.0
    """Largest deviation of log prior variances from a sum over rows and columns, which Kronecker blocks need."""

    def joined(self, other: "Facts") -> "Facts":
        """Return the worst of both, with clipped eigenvalues added up."""
        return Facts(
            min(self.least, other.least), self.clipped + other.clipped, max(self.inseparable, other.inseparable)
        )


def spectral(part: Part, scale: np.ndarray, vectors: np.ndarray, values: np.ndarray, uniform: bool) -> Block:
    """Return the block of a whitened matrix with these eigenvectors and eigenvalues; scales are prior deviations."""
    return linalg.Spectral(*_arrays(part, scale, vectors, values), uniform=uniform)


def _arrays(part: Part, *values: np.ndarray) -> list[jax.Array]:
    """The flat indices of a part's weights, and arrays in JAX's default float dtype, on the device."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    return jax.device_put([part.index.astype(np.int32), *(np.asarray(array, dtype) for array in values)])


def from_rows(part: Part, rows: np.ndarray, scale: np.ndarray, uniform: bool) -> Block:
    """Return the block of rows R of a square root, H~ = R^T R, by the eigenvectors of R R^T.

    Negligible eigenvalues and their vectors are set to 0, so that shapes stay the same.
    """
    values, left_vectors = linalg.eigh(rows @ rows.T)
    kept = values > _NEGLIGIBLE * values.max(initial=0.0)
    vectors = (rows.T @ left_vectors) * np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    return spectral(part, scale, vectors, np.where(kept, values, 0.0), uniform)


def diagonal(part: Part, total: np.ndarray, variances: np.ndarray, uniform: bool) -> Block:
    """Return the block of a diagonal, in units of the prior."""
    prior = variances[part.index]
    return linalg.Diagonal(*_arrays(part, prior, np.maximum(total * prior, 0.0)), uniform=uniform)


def negative(values: np.ndarray) -> Facts:
    """Return facts on negative eigenvalues, not counting rounding errors."""
    values = np.ravel(values)
    below = values < -1e-6 * max(np.abs(values).max(initial=0.0), 1e-30)
    return Facts(float(values.min(initial=0.0)), int(below.sum()))
