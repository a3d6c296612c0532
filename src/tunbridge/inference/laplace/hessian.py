"""The exact Hessian of minus the log likelihood, a few rows at a time."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from tunbridge.core.data import Data, Stream
from tunbridge.core.types import Key
from tunbridge.inference.laplace import products
from tunbridge.inference.laplace.local import Local, Part, summed

_ROWS = 64
"""Number of rows that are computed at once."""


def matrices(local: Local, curvature: Any, data: Data | Stream, key: Key, parts: list[Part]) -> list:
    """Return the exact Hessian of the weights of each part, marked as a matrix."""
    return [("matrix", _rows(local, curvature, data, key, part.index)[:, part.index]) for part in parts]


def diagonal(local: Local, curvature: Any, data: Data | Stream, key: Key) -> np.ndarray:
    """Return the diagonal of the exact Hessian, (weights,)."""
    everything = np.arange(local.size)
    starts = range(0, local.size, _ROWS)
    strips = [_rows(local, curvature, data, key, everything[s : s + _ROWS]) for s in starts]
    return np.concatenate([np.diagonal(rows, start) for start, rows in zip(starts, strips, strict=True)])


def _rows(local: Local, curvature: Any, data: Data | Stream, key: Key, index: np.ndarray) -> np.ndarray:
    """Rows of the exact Hessian, (len(index), weights)."""
    missing = -len(index) % _ROWS
    padded = np.concatenate([index, np.repeat(index[-1:], missing)]).reshape(-1, _ROWS)
    parts = [summed(products.hessian_rows, local, data, key, local.size, curvature, jnp.asarray(n)) for n in padded]
    return np.concatenate(parts)[: len(index)]
