"""Rows in blocks of equal size, so that one compiled program serves all of them; the last block is padded."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np


def blocks(num: int, size: int) -> Iterator[slice]:
    """Slices that cut `num` rows into blocks of `size`; the last one may be shorter."""
    return (slice(start, min(start + size, num)) for start in range(0, num, size))


def evenly(num: int, most: int) -> np.ndarray:
    """At most `most` of `num` indices, evenly spaced, the first and the last among them."""
    return np.unique(np.linspace(0, num - 1, min(num, most)).round().astype(int))


def few_sizes(num: int, least: int) -> int:
    """Size of a block for `num` rows: the next power of two, at least `least`, so that few sizes occur."""
    return max(least, 1 << (num - 1).bit_length())


def filled(rows: Any, size: int) -> Any:
    """Rows padded to `size` with copies of the last row."""
    missing = size - len(rows)
    return rows if missing == 0 else np.concatenate([rows, np.repeat(np.asarray(rows[-1:]), missing, axis=0)])


def blockwise(function: Callable[[slice, Callable[[Any], Any]], Any], num: int, size: int) -> Any:
    """Apply a function block by block and return its concatenated results on the host, without the padding.

    Parameters
    ----------
    function
        Called with the slice of a block and a function that pads an array of these rows to `size`; returns a pytree
        of arrays with a leading axis of length `size`.
    num, size
        Number of rows in all, and per block.
    """
    parts = []
    for block in blocks(num, size):
        results = function(block, lambda rows: filled(rows, size))
        parts.append(jax.tree.map(lambda leaf, keep=block.stop - block.start: np.asarray(leaf)[:keep], results))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
