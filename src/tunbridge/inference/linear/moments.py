r"""Linear regression on fixed features, from sums over the rows alone, in NumPy and float64.

With features :math:`\Phi`, targets y and a penalty D (diagonal, one entry per weight) the weights of one output
minimise :math:`\lVert y - \Phi w \rVert^2 + w^\top D w`. The minimum, the minimiser, and
:math:`(\Phi^\top \Phi + D)^{-1}` depend on the rows only through these sums, so rows may come in any portions.
"""

import numpy as np
from scipy.linalg import solve_triangular

from tunbridge.core.declared import Module


class Moments(Module):
    """Sums over rows of features (rows, features) and targets (rows, outputs)."""

    gram: np.ndarray
    """Sum of outer products of features, (features, features)."""
    cross: np.ndarray
    """Sum of features times targets, (features, outputs)."""
    squares: np.ndarray
    """Sum of squared targets, (outputs,)."""
    num: np.ndarray
    """Sum of the rows' weights."""

    @staticmethod
    def of(features: np.ndarray, targets: np.ndarray, weight: np.ndarray) -> "Moments":
        """Return the sums over some rows, each multiplied by its weight."""
        phi, y, w = (np.asarray(part, np.float64) for part in (features, targets, weight))
        weighted = phi.T * w[None]
        return Moments(weighted @ phi, weighted @ y, w @ y**2, np.asarray(w.sum()))

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(
            self.gram + other.gram, self.cross + other.cross, self.squares + other.squares, self.num + other.num
        )


class Solved(Module):
    """The penalised least-squares solution of each output."""

    mean: np.ndarray
    """The minimisers, (features, outputs)."""
    roots: np.ndarray
    r"""U with :math:`U U^\top = (\Phi^\top \Phi + D)^{-1}`, (outputs or 1, features, features)."""
    least: np.ndarray
    """The minima, (outputs,)."""
    log_det: np.ndarray
    r""":math:`\log\det(\Phi^\top \Phi + D) - \log\det D`, (outputs,)."""

    @property
    def diagonal(self) -> np.ndarray:
        r"""The diagonal of :math:`U U^\top`, (features, outputs or 1)."""
        return np.sum(self.roots**2, axis=2).T


def solve(moments: Moments, penalty: np.ndarray) -> Solved:
    r"""Solve least squares with a penalty (features, outputs).

    By Cholesky factors of :math:`I + D^{-1/2} \Phi^\top \Phi D^{-1/2}`; one is shared if all outputs have one penalty.
    """
    distinct = penalty[:, :1] if alike(penalty) else penalty
    roots, log_dets = zip(*(_factored(moments.gram, column) for column in distinct.T), strict=True)
    stacked = np.stack(roots)
    whitened = np.einsum("jab,aj->bj", stacked, moments.cross) if len(roots) > 1 else stacked[0].T @ moments.cross
    mean = np.einsum("jab,bj->aj", stacked, whitened) if len(roots) > 1 else stacked[0] @ whitened
    least = np.maximum(moments.squares - np.sum(whitened**2, axis=0), 0.0)
    return Solved(mean, stacked, least, np.broadcast_to(np.array(log_dets), least.shape).copy())


def alike(penalty: np.ndarray) -> bool:
    """Whether all outputs have the same penalty."""
    return bool((penalty == penalty[:, :1]).all())


def num_bytes(features: int, factors: int) -> int:
    """Memory that `solve` takes, in bytes."""
    return 8 * features**2 * (3 + 3 * factors)


def _factored(gram: np.ndarray, penalty: np.ndarray) -> tuple[np.ndarray, float]:
    scale = 1.0 / np.sqrt(penalty)
    whole = scale[:, None] * gram * scale[None]
    whole.flat[:: len(whole) + 1] += 1.0
    lower = np.linalg.cholesky(whole)
    inverse = solve_triangular(lower, np.eye(len(lower)), lower=True, overwrite_b=True)
    return scale[:, None] * inverse.T, 2.0 * float(np.log(np.diagonal(lower)).sum())
