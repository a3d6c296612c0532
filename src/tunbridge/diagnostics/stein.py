"""Distance of draws from a density known up to its normalising constant."""

from typing import Any

import numpy as np

from tunbridge.core.declared import as_floats, checked
from tunbridge.core.errors import InputError

_BLOCK_NUMBERS = 2**22
"""How many entries of the kernel matrix are held in memory at once."""


@checked
def stein_discrepancy(draws: Any, scores: Any, *, scale: float = 1.0, power: float = -0.5) -> float:
    r"""Kernel Stein discrepancy with the inverse multiquadric kernel :cite:p:`gorham2017measuring`.

    .. math::

        \text{KSD}^2 = \frac{1}{n^2} \sum_{ij} \big( s_i \cdot s_j \, k + s_i \cdot \nabla_y k + s_j \cdot \nabla_x k
        + \nabla_x \cdot \nabla_y k \big)(x_i, x_j), \qquad k(x, y) = (c^2 + \lVert x - y \rVert^2)^\beta,

    where :math:`s = \nabla \log \pi`. It goes to zero if and only if the draws converge to :math:`\pi` (for tails that
    are not too heavy). In many dimensions it needs many draws to detect a difference, and it does not detect that a
    distant mode is missing.

    Parameters
    ----------
    draws, scores
        (draws, dimensions) each: the points, and the gradients of the log density there.
    scale, power
        The kernel's c > 0, and its exponent :math:`\beta`, between -1 and 0.
    """
    x, s = as_floats(draws, "draws"), as_floats(scores, "scores")
    if x.ndim != 2 or x.shape != s.shape or not x.size:
        raise InputError(
            "draws and scores of one shape (draws, dimensions)", f"{x.shape} and {s.shape}", "Ravel the parameters."
        )
    if not (-1.0 < power < 0.0 < scale and 0.0 < float(scale) * float(scale) < np.inf):
        raise InputError(
            "a power from -1 to 0, and a scale above 0 whose square is above 0 and finite",
            f"{power} and {scale}",
            "Leave them out.",
        )
    num, size = len(x), max(1, _BLOCK_NUMBERS // len(x))
    blocks = (slice(start, start + size) for start in range(0, num, size))
    total = sum(_stein_kernel(x[block], s[block], x, s, scale, power).sum() for block in blocks)
    return float(np.sqrt(max(total, 0.0)) / num)


def _stein_kernel(x: np.ndarray, s: np.ndarray, y: np.ndarray, t: np.ndarray, scale: float, power: float) -> np.ndarray:
    """Terms of the sum, (rows of x, rows of y), with s and t the scores at x and y."""
    dimensions = x.shape[1]
    squared = np.maximum((x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * x @ y.T, 0.0)
    q = scale**2 + squared
    apart = (x * s).sum(1)[:, None] + (y * t).sum(1)[None] - x @ t.T - s @ y.T  # (x - y) . (s - t)
    trace = -2 * power * q ** (power - 1) * (dimensions + 2 * (power - 1) * squared / q)
    return (s @ t.T) * q**power - 2 * power * q ** (power - 1) * apart + trace
