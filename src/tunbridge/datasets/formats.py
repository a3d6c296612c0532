"""Readers for file formats of labelled images. Reading a file never runs code from it."""

import gzip
import math
import pickle
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

Labelled = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Training images and labels, test images and labels."""
DAMAGED = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, struct.error),
    *(zlib.error, zipfile.BadZipFile, tarfile.TarError, pickle.UnpicklingError),
)
"""Exceptions raised by reading a file that was truncated, altered, or has another format."""
IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
"""The four files of MNIST, and of data sets in its format."""
BATCHES = "cifar-10-python.tar.gz"
"""The one file of CIFAR-10."""


def npz(path: Path) -> Labelled:
    """Read a .npz file with arrays x_train, y_train, x_test and y_test."""
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"]


def idx(folder: Path) -> Labelled:
    """Read the four files of MNIST: images (points, height, width)."""
    x_train, y_train, x_test, y_test = (_bytes(folder / name) for name in IDX)
    return x_train, y_train, x_test, y_test


def _bytes(path: Path) -> np.ndarray:
    """Read an array of unsigned bytes: 0, 0, 8 and its rank, then its shape in big-endian words, then the bytes."""
    with gzip.open(path) as file:
        zero, kind, rank = struct.unpack(">HBB", file.read(4))
        shape = struct.unpack(f">{rank}I", file.read(4 * rank))
        content = file.read(math.prod(shape) + 1)
    if (zero, kind) != (0, 8) or len(content) != math.prod(shape):
        raise ValueError(f"{path.name} does not hold the bytes it announces")
    return np.frombuffer(content, np.uint8).reshape(shape)


def cifar(folder: Path) -> Labelled:
    """Read the six batches of CIFAR-10: images (points, 32, 32, 3)."""
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    with tarfile.open(folder / BATCHES) as archive:
        batches = [_batch(archive, f"cifar-10-batches-py/{name}") for name in names]
    *train, (x_test, y_test) = batches
    return np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train]), x_test, y_test


def _batch(archive: tarfile.TarFile, name: str) -> tuple[np.ndarray, np.ndarray]:
    file: Any = archive.extractfile(name)
    batch = _Arrays(file, encoding="latin1").load()
    return batch["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), np.asarray(batch["labels"])


class _Arrays(pickle.Unpickler):
    """An unpickler for numbers, text, containers and arrays only; no other name is looked up, so none can be called."""

    def __init__(self, file: BinaryIO, encoding: str):
        super().__init__(file, encoding=encoding)

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the three globals that a pickled array needs; UnpicklingError for any other."""
        known: dict[tuple[str, str], Any] = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.zeros(0).__reduce__()[0]
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array needs")
        return known[module, name]
