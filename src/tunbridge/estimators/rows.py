"""The rows of a table as what they are to a posterior: a multiset."""

import numpy as np


def distinct(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Each row once, in an order of its own, with the sum of its weights; None if each counts once.

    A row given twice, given once with weight 2, given elsewhere in the table, or given beside rows of weight 0 is the
    same evidence; so it is the same data, to the bit, and the same fit.
    """
    table = np.column_stack([x, y]).astype(np.float64) + 0.0  # -0 and 0 are one number
    _, first, which = np.unique(table, axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(which.ravel(), weight)
    keep = counts > 0
    rows = first[keep]
    return x[rows], y[rows], None if (counts[keep] == 1).all() else counts[keep]
