"""Conversion to `Data` or `Stream` of pairs (x, y) and of data loaders such as PyTorch's."""

from collections.abc import Iterable, Iterator, Sized
from typing import Any

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError

_ADVICE = (
    "Write tb.Data(x, y), or tb.Data.from_batches(batches, num=...) with the number of rows of an epoch. "
    "A Dataset of PyTorch goes into a DataLoader(dataset, batch_size=128) first."
)


def as_data(given: Any) -> Data | Stream:
    """Return `Data` and `Stream` unchanged, a pair (x, y) as `Data`, a loader as a `Stream`; InputError otherwise.

    A loader is an iterable of batches (x, y) that can be read repeatedly and whose `sampler` or `dataset` has a length:
    the number of rows per epoch. PyTorch tensors become arrays.
    """
    if isinstance(given, Data | Stream):
        return given
    if isinstance(given, tuple):
        return as_table(given)
    num = _num_rows(given)
    if num is None:
        raise InputError("data as tb.Data, a pair (x, y) or a loader of such pairs", type(given).__name__, _ADVICE)
    if getattr(given, "persistent_workers", False):
        raise InputError(
            "a loader that can be read several times at once",
            "persistent_workers=True",
            "Write persistent_workers=False.",
        )
    return Stream(_Pairs(given), num)


def as_table(given: Any) -> Data:
    """Return `Data` unchanged and a pair (x, y) as `Data`; InputError otherwise."""
    return given if isinstance(given, Data) else Data(*as_pair(given))


def as_pair(given: Any) -> tuple[Any, Any]:
    """Return the x and y of a pair, PyTorch tensors as arrays; InputError unless it is a tuple (x, y)."""
    if not isinstance(given, tuple):
        do = "Write tb.Data(x, y), or (x, y), with all rows."
        raise InputError("rows in memory, as tb.Data or a pair (x, y)", type(given).__name__, do)
    if len(given) != 2:
        raise InputError(
            "a pair (x, y)", f"a tuple of {len(given)}", "Write (x, y), or tb.Data(x, y, weight) for weighted rows."
        )
    return _array(given[0]), _array(given[1])


class _Pairs:
    """The batches of a loader as pairs (x, y); each iteration reads the loader again."""

    def __init__(self, loader: Iterable):
        self._loader = loader

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in self._loader:
            if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
                raise InputError(
                    "batches as (x, y) or (x, y, weight)",
                    type(batch).__name__ + (f" of {len(batch)}" if isinstance(batch, tuple | list) else ""),
                    "Write tb.Data.from_batches(lambda epoch: ((batch['x'], batch['y']) for batch in loader), "
                    "num=...), with the names of your inputs and targets.",
                )
            yield tuple(_array(part) for part in batch)


def _num_rows(loader: Any) -> int | None:
    """Number of rows per epoch of a loader; None where its length is unknown."""
    if isinstance(loader, Iterable) and not isinstance(loader, Iterator):
        for source in (getattr(loader, "sampler", None), getattr(loader, "dataset", None)):
            if isinstance(source, Sized):
                return len(source)
    return None


def _array(values: Any) -> Any:
    """A PyTorch tensor as a NumPy array, bfloat16 as float32, which NumPy lacks; everything else unchanged."""
    if type(values).__module__.partition(".")[0] != "torch":
        return values
    tensor = values.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
