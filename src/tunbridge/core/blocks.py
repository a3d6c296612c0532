"""Rows in blocks of one size, so that one program serves them all: the last is filled up with its last row."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np


def blocks(num: int, size: int) -> Iterator[slice]:
    """The rows of each block, of `num` in all."""
    return (slice(start, min(start + size, num)) for start in range(0, num, size))


def few_sizes(num: int, least: int) -> int:
    """A size for a block of `num` rows, one of a few: a power of two from `least` on."""
    return max(least, 1 << (num - 1).bit_length())


def filled(rows: Any, size: int) -> Any:
    """Rows filled up to `size` with copies of the last."""
    missing = size - len(rows)
    return rows if missing == 0 else np.concatenate([rows, np.repeat(np.asarray(rows[-1:]), missing, axis=0)])


def blockwise(function: Callable[[slice, Callable[[Any], Any]], Any], num: int, size: int) -> Any:
    """The rows of a function's results, on the host.

    Parameters
    ----------
    function
        Of the rows of a block and of what fills arrays of these up to its size; what it gives has leading axes of that
        size.
    num, size
        How many rows there are in all, and in a block.
    """
    parts = []
    for own in blocks(num, size):
        found = function(own, lambda rows: filled(rows, size))
        parts.append(jax.tree.map(lambda leaf, keep=own.stop - own.start: np.asarray(leaf)[:keep], found))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
