"""Rows of a table as a multiset: equal rows merged, their weights summed."""

import numpy as np


def distinct(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the distinct rows, sorted, with the sum of each row's weights (None if every sum is 1).

    Two copies of a row are the same evidence as one row of weight 2, and neither the order of rows nor rows of weight
    0 matter. Such tables therefore give bit-identical data, and so the same fit.
    """
    table = np.column_stack([x, y]).astype(np.float64) + 0.0  # -0 and 0 are equal
    _, first, which = np.unique(table, axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(which.ravel(), weight)
    keep = counts > 0
    rows = first[keep]
    return x[rows], y[rows], None if (counts[keep] == 1).all() else counts[keep]
