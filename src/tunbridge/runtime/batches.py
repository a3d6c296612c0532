"""Minibatches as a pure function of (key, step), so that a resumed run sees the same rows as an uninterrupted one."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.random import fold_in, words
from tunbridge.core.tree import num_bytes
from tunbridge.core.types import Key, PyTree

_HOST_BYTES = 2**26
"""Bytes of a stream that are stacked for one chunk."""


class FullBatch(Module):
    """All the data at every step."""

    data: Data

    def start(self, key: Key, step: Array) -> PyTree:
        """An empty cursor."""
        return ()

    def follow(self, key: Key, cursor: PyTree, step: Array) -> PyTree:
        """The cursor unchanged."""
        return cursor

    def batch(self, cursor: PyTree, step: Array) -> Data:
        """All the data."""
        return self.data


class Minibatches(Module):
    """Minibatches of rows in a new random order each epoch; the last batch of an epoch wraps around to its start.

    The permutation is a pure function of (key, epoch). The cursor holds that of the current epoch, and also that of
    the next one if a stride may reach into it.
    """

    data: Data
    size: int = eqx.field(static=True)
    stride: int = eqx.field(default=1, static=True)
    """Steps between two checks for a new epoch, at most the steps of an epoch."""

    def start(self, key: Key, step: Array) -> PyTree:
        """The permutation of the epoch of `step`, and of the next if the stride is above 1: (epochs, rows)."""
        epoch = step // self.per_epoch
        ahead = range(1 if self.stride == 1 else 2)
        return jnp.stack([self._permutation(key, epoch + number) for number in ahead])

    def follow(self, key: Key, cursor: PyTree, step: Array) -> PyTree:
        """The cursor for the stride that begins at `step`, given that of the stride before."""
        epoch_begins = step // self.per_epoch != (step - self.stride) // self.per_epoch
        return jax.lax.cond(epoch_begins, lambda: self.start(key, step), lambda: cursor)

    def batch(self, cursor: PyTree, step: Array) -> Data:
        """The rows of batch `step`."""
        epoch, place = step // self.per_epoch, step % self.per_epoch
        first_epoch = step // self.stride * self.stride // self.per_epoch
        rows = cursor[epoch - first_epoch, (place * self.size + jnp.arange(self.size)) % self.data.num]
        weight = None if self.data.weight is None else self.data.weight[rows]
        return self.data.with_rows(self.data.x[rows], self.data.y[rows], weight)

    @property
    def per_epoch(self) -> Any:
        """Steps per epoch."""
        return -(-self.data.num // self.size)

    def _permutation(self, key: Key, epoch: Array) -> Array:
        """A random permutation of the rows, with padding rows last."""
        counter = jax.lax.iota(jnp.uint32, self.data.capacity)
        bits = words(fold_in(key, epoch), counter)
        is_row = counter < jnp.asarray(self.data.num, jnp.uint32)
        return jnp.argsort(jnp.where(is_row, bits, jnp.uint32(2**32 - 1)))


class Stacked(Module):
    """Consecutive batches of a stream, stacked, from step `first` on."""

    batches: Data
    first: Any

    def start(self, key: Key, step: Array) -> PyTree:
        """An empty cursor."""
        return ()

    def follow(self, key: Key, cursor: PyTree, step: Array) -> PyTree:
        """The cursor unchanged."""
        return cursor

    def batch(self, cursor: PyTree, step: Array) -> Data:
        """The batch of `step`."""
        return jax.tree.map(lambda leaf: leaf[step - self.first], self.batches)


class HostCursor:
    """A position in a stream: the epoch, how many of its batches were read, and how many rows of the last are left.

    A short batch, as the last of an epoch may be, is completed with the rows that follow, so that every row is used
    equally often. `check` is the `check` of the likelihood, applied to the targets.
    """

    def __init__(self, stream: Stream, check: Callable[[Array], Array], epoch: int = 0, used: int = 0, left: int = 0):
        self.stream, self.epoch, self.used, self._check = stream, epoch, used, check
        self.first = self._scored(stream.first)
        self.capacity = max(1, min(256, _HOST_BYTES // max(num_bytes(self.first), 1)))
        self._iterator: Iterator | None = None
        self._rest: Data | None = None
        if left:
            self.used -= 1
            self._rest = _sliced(self._read(), slice(-left, None))

    @property
    def place(self) -> dict[str, int]:
        """The arguments with which another cursor continues from this position."""
        return {"epoch": self.epoch, "used": self.used, "left": 0 if self._rest is None else self._rest.num}

    def take(self, start: int, count: int) -> Stacked:
        """The next `count` batches, the first for step `start`; padded to the capacity to share one program."""
        batches = [self._next() for _ in range(count)]
        padded = batches + [batches[-1]] * (self.capacity - count)
        return Stacked(jax.tree.map(lambda *leaves: np.stack(leaves), *padded), np.int32(start))

    def _next(self) -> Data:
        rows, num = self._rest, self.first.num
        while rows is None or rows.num < num:
            more = self._read()
            rows = more if rows is None else jax.tree.map(lambda a, b: np.concatenate([a, b]), rows, more)
        self._rest = _sliced(rows, slice(num, None)) if rows.num > num else None
        return _sliced(rows, slice(0, num))

    def _read(self) -> Data:
        """The next batch as the stream yields it, on the host; InputError if an epoch is empty or shapes differ."""
        if self._iterator is None:
            self._iterator = self.stream.batches(self.epoch, skip=self.used)
        rows = next(self._iterator, None)
        if rows is None:
            if self.used == 0:
                raise InputError(
                    "batches in every epoch",
                    f"none in epoch {self.epoch}",
                    "Pass a function make(epoch), or an iterable that restarts.",
                )
            self.epoch, self.used, self._iterator = self.epoch + 1, 0, None
            return self._read()
        self.used += 1
        rows = self._scored(rows)
        alike = all(a.shape[1:] == b.shape[1:] for a, b in ((rows.x, self.first.x), (rows.y, self.first.y)))
        if rows.num > self.first.num or not alike:
            raise InputError(
                f"batches of one shape, {self.first.x.shape} like the first",
                f"{rows.x.shape} in epoch {self.epoch}, batch {self.used - 1}",
                "Let every batch have as many columns as the first, and at most as many rows.",
            )
        return jax.tree.map(np.asarray, rows)

    def _scored(self, rows: Data) -> Data:
        """The same rows with their targets as the likelihood takes them."""
        return Data(rows.x, self._check(rows.y), rows.weight)


def _sliced(rows: Data, chosen: slice) -> Data:
    return jax.tree.map(lambda leaf: leaf[chosen], rows)
