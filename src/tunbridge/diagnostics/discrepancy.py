"""Distance between two sets of draws."""

from typing import Any

import numpy as np

from tunbridge.core.declared import Positive, as_floats, checked
from tunbridge.core.errors import InputError

_BLOCK_NUMBERS = 2**22
"""How many entries of the kernel matrix are held in memory at once."""
_MEDIAN_ROWS = 1000
"""From how many draws the median distance is computed."""


@checked
def mmd(x: Any, y: Any, *, scale: Positive | None = None) -> float:
    r"""Unbiased estimate of the squared maximum mean discrepancy of two sets of draws :cite:p:`gretton2012kernel`.

    .. math::

        \text{MMD}^2 = E\,k(x, x') + E\,k(y, y') - 2 E\,k(x, y), \qquad k(x, y) = e^{-\lVert x - y \rVert^2 / 2 l^2}

    The discrepancy is zero if and only if the distributions are equal; its estimate may be negative.

    Parameters
    ----------
    x, y
        Two sets of draws, (draws, dimensions) each.
    scale
        The kernel's length scale l; None takes the median distance between the pooled draws.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(3, 1000, 2))
    >>> abs(mmd(x[0], x[1])) < 0.002 < mmd(x[0], x[2] + 0.5)
    True
    """
    x, y = as_floats(x, "x"), as_floats(y, "y")
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise InputError(
            "two sets of at least two draws (draws, dimensions)", f"shapes {x.shape} and {y.shape}", "Ravel the draws."
        )
    length = _median(x, y) if scale is None else float(scale)
    if not length > 0:
        raise InputError("a scale above 0", f"{length}", "Give scale=, or draws that are not all equal.")
    within = sum((_total(z, z, length) - len(z)) / (len(z) * (len(z) - 1)) for z in (x, y))
    return float(within - 2 * _total(x, y, length) / (len(x) * len(y)))


def _median(x: np.ndarray, y: np.ndarray) -> float:
    from scipy.spatial.distance import pdist

    pooled = np.concatenate([z[np.linspace(0, len(z) - 1, min(len(z), _MEDIAN_ROWS // 2)).astype(int)] for z in (x, y)])
    return float(np.median(pdist(pooled)))


def _total(x: np.ndarray, y: np.ndarray, length: float) -> float:
    from scipy.spatial.distance import cdist

    size = max(1, _BLOCK_NUMBERS // len(y))
    blocks = (cdist(x[start : start + size], y, "sqeuclidean") for start in range(0, len(x), size))
    return float(sum(np.exp(-0.5 * (block / length) / length).sum() for block in blocks))
