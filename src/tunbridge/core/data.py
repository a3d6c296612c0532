"""`Data` and `Stream`: rows of inputs and targets, in memory or as a stream of batches, checked on construction."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.declared import Module, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.core.tree import num_bytes

_FEWEST, _STEP = 16, 1024
"""The smallest spacing of capacities, in rows, and the largest."""
_MOST_PADDED = 2**28
"""The largest table, in bytes after padding, that is copied to be padded."""


def capacity_for(num: int) -> int:
    """Number of rows to which arrays of `num` rows are padded: four sizes per doubling, then multiples of 1,024."""
    step = max(_FEWEST, min(_STEP, (1 << (int(num) - 1).bit_length()) // 8))
    return -(-int(num) // step) * step


def room_for(num: int, most: int | None = None) -> int:
    """Capacity for a table that grows to `most` rows: the smallest of 64, 256, 1,024, ... that is at least `num`."""
    capacity = 64 * 4 ** max(0, ((int(num) - 1).bit_length() - 5) // 2)
    return capacity if most is None else min(capacity, max(int(num), capacity_for(most)))


class Data(Module):
    """Rows of inputs and targets.

    Parameters
    ----------
    x
        Inputs, (points, ...features).
    y
        Targets: real numbers (points, outputs), where a 1-D array of floats becomes a column, or integer labels
        (points,).
    weight
        How many times each row counts, (points,); None counts each row once.

    Examples
    --------
    >>> Data([[0.0], [1.0]], [2.0, 3.0]).y.shape
    (2, 1)
    """

    x: Array
    y: Array
    weight: Array | None
    count: Any = eqx.field(init=False)
    """Number of rows where the arrays are padded beyond them; None where they are not padded."""

    def __init__(self, x: Any, y: Any, weight: Any = None):
        x_rows, y_rows = check_x(x), _numbers(y, "y")
        if y_rows.ndim not in (1, 2):
            raise InputError("y of shape (points,) or (points, outputs)", f"shape {y_rows.shape}", "Reshape y.")
        if len(x_rows) != len(y_rows):
            raise InputError(
                "as many rows in y as in x",
                f"{len(x_rows)} in x and {len(y_rows)} in y",
                "Pass matching rows.",
            )
        _refuse_nonfinite(y_rows, "y")
        if y_rows.ndim == 1 and np.issubdtype(y_rows.dtype, np.inexact):
            y_rows = y_rows[:, None]
        self.x, self.y = _to_device(x_rows), _to_device(y_rows)
        self.weight = None if weight is None else _check_weight(weight, len(x_rows))
        self.count = None

    @property
    def num(self) -> Any:
        """Number of rows, without padding; traced inside a program that serves tables of several lengths."""
        return self.capacity if self.count is None else self.count

    @property
    def capacity(self) -> int:
        """Number of rows of the arrays, padding included."""
        return self.x.shape[0]

    @property
    def weights(self) -> Array:
        """How many times each row counts, (capacity,); ones where no weight was given."""
        return jnp.ones(self.capacity) if self.weight is None else self.weight

    def padded(self, masked: bool = True, capacity: int | None = None) -> "Data":
        """The same rows in arrays padded to a common size with copies of the first row.

        Programs are compiled for shapes: tables of 385 to 448 rows share one program. Very large tables are returned
        as they are.

        Parameters
        ----------
        masked
            Whether padding rows have weight 0. If False, data without weights stay without them, for callers that
            select among the first `num` rows themselves.
        capacity
            Number of rows of the arrays, for tables that grow: one of many refits then compiles nothing. None takes
            the next common size.
        """
        capacity = capacity_for(self.num) if capacity is None else max(capacity, self.num)
        if self.count is not None or capacity * (num_bytes(self) // self.num) > _MOST_PADDED:
            return self
        index = np.where(np.arange(capacity) < self.num, np.arange(capacity), 0)
        weight = None
        if masked or self.weight is not None:
            weight = np.zeros(capacity, jax.dtypes.canonicalize_dtype(float))
            weight[: self.num] = 1.0 if self.weight is None else self.weight
        arrays = np.asarray(self.x)[index], np.asarray(self.y)[index], weight
        x, y, weight = jax.device_put(arrays)
        return self.with_rows(x, y, weight, np.int32(self.num))

    def with_rows(self, x: Any, y: Any, weight: Any = None, count: Any = None) -> "Data":
        """A copy with other rows, which are not checked; for use inside jit."""
        arguments = (lambda data: (data.x, data.y, data.weight, data.count)), self, (x, y, weight, count)
        return eqx.tree_at(*arguments, is_leaf=lambda leaf: leaf is None)

    def where(self, counts: Array) -> "Data":
        """The same rows with weight 0 where the mask `counts` is False; for use inside jit."""
        weight = counts.astype(float) if self.weight is None else jnp.where(counts, self.weight, 0.0)
        return self.with_rows(self.x, self.y, weight, self.count)

    @staticmethod
    def from_batches(make: Callable[[int], Iterable] | Iterable, num: int) -> "Stream":
        """Data that arrive as batches (x, y) or (x, y, weight) from the host.

        Parameters
        ----------
        make
            `make(epoch)` returns the batches of one epoch, the same ones each time it is called, so that a run can be
            resumed exactly. A bare iterable works too, but cannot be checkpointed. A batch with fewer rows than the
            first, as the last of an epoch may be, is completed with the rows that follow.
        num
            Number of rows per epoch: the N of the N/n in the log likelihood.
        """
        return Stream(make, num)


class Stream:
    """Batches (x, y) or (x, y, weight) of one shape from the host; see `Data.from_batches`."""

    @checked
    def __init__(self, make: Callable[[int], Iterable] | Iterable, num: int):
        if num < 1:
            raise InputError("num, the rows of an epoch, at least 1", str(num), "Count the rows of the data set.")
        self.num = num
        self.restartable = callable(make)
        """Whether `make` returns the same batches when called again; a bare iterable may not."""
        self.repeatable = not isinstance(make, Iterator)
        """Whether the batches can be read several times, in whatever order; those of an iterator cannot."""
        self.make: Callable[[int], Iterable] = make if callable(make) else _replay(make)
        head = next(iter(self.make(0)), None)
        if not isinstance(head, tuple | list) or len(head) not in (2, 3):
            raise InputError(
                "batches (x, y) or (x, y, weight), at least one per epoch",
                shown(head),
                "Let make(epoch) yield tuples of arrays.",
            )
        self.first = Data(*head)
        """The first batch, which defines the shapes."""

    def batches(self, epoch: int, skip: int = 0) -> "Iterator[Data]":
        """The batches of an epoch from number `skip` on; InputError if only some of them have weights."""
        for batch in itertools.islice(iter(self.make(epoch)), skip, None):
            rows = Data(*batch)
            if (rows.weight is None) != (self.first.weight is None):
                raise InputError(
                    "a weight for every row or for none",
                    f"a batch in epoch {epoch} {'without weights' if rows.weight is None else 'with weights'}",
                    "Let make(epoch) yield (x, y, weight) each time, or (x, y) each time.",
                )
            yield rows


def _replay(batches: Iterable) -> Callable[[int], Iterable]:
    """An iterable as a function of the epoch. An iterator can be read once; only its first batch is repeated."""
    iterator = iter(batches)
    if iterator is not batches:
        return lambda _: batches
    head = list(itertools.islice(iterator, 1))
    return lambda epoch: itertools.chain(head, iterator) if epoch == 0 else ()


def check_x(x: Any) -> np.ndarray:
    """Return inputs as an array (points, ...features); InputError unless it is finite and has rows."""
    rows = _numbers(x, "x")
    if rows.ndim < 2:
        raise InputError("x of shape (points, features)", f"shape {rows.shape}", "For one feature write x[:, None].")
    if len(rows) == 0:
        raise InputError("at least one row", "none", "Check how the data was read or filtered.")
    _refuse_nonfinite(rows, "x")
    return rows


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{name} as an array of numbers", shown(values), "Check that all rows are equally long."
        ) from error
    if array.dtype == bool:
        return array.astype(np.int32)
    if np.issubdtype(array.dtype, np.integer) and array.size and not _fits(array):
        return array.astype(np.float64)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == jnp.bfloat16) or np.iscomplexobj(array):
        raise InputError(
            f"real numbers in {name}",
            f"dtype {array.dtype}",
            "Encode categories as numbers, labels as 0, 1, ...",
        )
    return array


def _fits(array: np.ndarray) -> bool:
    """Whether integers fit the default integer type of JAX."""
    limits = np.iinfo(jax.dtypes.canonicalize_dtype(np.int64))
    return bool(limits.min <= array.min() <= array.max() <= limits.max)


def _refuse_nonfinite(rows: np.ndarray, name: str) -> None:
    if np.issubdtype(rows.dtype, np.integer):
        return
    with np.errstate(over="ignore"):
        cast = rows.reshape(len(rows), -1).astype(jax.dtypes.canonicalize_dtype(rows.dtype), copy=False)
    finite = np.isfinite(cast)
    if not finite.all():
        first = ", ".join(map(str, np.unravel_index(finite.argmin(), rows.shape)))
        bad_rows = np.flatnonzero(~finite.all(axis=1))
        places = ", ".join(map(str, bad_rows[:5])) + (", ..." if len(bad_rows) > 5 else "")
        raise InputError(
            f"finite numbers in {name}",
            f"NaN or infinity (as {cast.dtype}) in {len(bad_rows)} of {len(rows)} rows ({places}), "
            f"first {name}[{first}]",
            "Drop or impute these rows.",
        )


def _check_weight(weight: Any, num: int) -> Array:
    rows = _numbers(weight, "weight")
    if rows.shape != (num,):
        raise InputError(f"weight of shape ({num},)", f"shape {rows.shape}", "Give one weight per row.")
    _refuse_nonfinite(rows, "weight")
    if (rows < 0).any() or not (rows > 0).any():
        raise InputError("weights >= 0, not all 0", f"least {rows.min()}, largest {rows.max()}", "Correct the weights.")
    return _to_device(rows.astype(float))


def _to_device(rows: np.ndarray) -> Array:
    """A copy on the device, in JAX's default precision. (`jnp.asarray` would compile a program for each shape.)"""
    return jax.device_put(np.array(rows, jax.dtypes.canonicalize_dtype(rows.dtype)))
