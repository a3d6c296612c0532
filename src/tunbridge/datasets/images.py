"""Benchmark data sets of labelled images: read from a folder, or downloaded once."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tunbridge.core.data import Data
from tunbridge.core.declared import checked
from tunbridge.core.errors import InputError
from tunbridge.datasets import formats
from tunbridge.datasets.download import cache, fetch


@dataclasses.dataclass(frozen=True)
class Source:
    """Where the files of a data set come from.

    Parameters
    ----------
    name
        Name of the data set and of the folder for its files.
    address
        The URL to which the file names are appended.
    files
        The SHA-256 of each file, by file name.
    read
        Reads the images and labels from the folder with the files.
    shape
        Shape of an image.
    first
        The first labels of the training set, which distinguish data sets with the same file names.
    """

    name: str
    address: str
    files: dict[str, str]
    read: Callable[[Path], formats.Labelled]
    shape: tuple[int, int, int]
    first: tuple[int, ...]

    @property
    def npz(self) -> str:
        """Name of the .npz file that may hold the whole data set."""
        return f"{self.name.replace('-', '_')}.npz"


def _digits(name: str, address: str, sha256: tuple[str, ...], labels: tuple[int, ...]) -> Source:
    """A data set of grey images in the format of MNIST."""
    return Source(name, address, dict(zip(formats.IDX, sha256, strict=True)), formats.idx, (28, 28, 1), labels)


MNIST = _digits(
    "mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    (5, 0, 4, 1, 9, 2, 1, 3, 1, 4),
)
FASHION_MNIST = _digits(
    "fashion-mnist",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
    (9, 0, 0, 3, 0, 2, 7, 2, 5, 5),
)
CIFAR10 = Source(
    "cifar10",
    "https://www.cs.toronto.edu/~kriz/",
    {formats.BATCHES: "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"},
    formats.cifar,
    (32, 32, 3),
    (6, 9, 9, 4, 1, 1, 2, 7, 8, 3),
)


@checked
def mnist(folder: str | os.PathLike | None = None) -> tuple[Data, Data]:
    """Return MNIST, handwritten digits :cite:p:`lecun1998gradient`: (train, test) of 60,000 and 10,000 images.

    Images are (points, 28, 28, 1) from 0 to 1, labels are the digits.

    Parameters
    ----------
    folder
        Folder with mnist.npz (x_train, y_train, x_test, y_test, images of unsigned bytes) or the four original
        files ``train-images-idx3-ubyte.gz`` and so on. None looks in the folder that the environment variable
        TUNBRIDGE_DATA names, if it is set, and otherwise downloads the files, once.
    """
    return _loaded(MNIST, folder)


@checked
def fashion_mnist(folder: str | os.PathLike | None = None) -> tuple[Data, Data]:
    """Return Fashion-MNIST, articles of clothing :cite:p:`xiao2017fashion`: (train, test) of 60,000 and 10,000 images.

    Images are (points, 28, 28, 1) from 0 to 1, labels are T-shirt, trouser, pullover, dress, coat, sandal, shirt,
    sneaker, bag, ankle boot, as 0 to 9.

    Parameters
    ----------
    folder
        As for `mnist`; the file is fashion_mnist.npz. Debian's package dataset-fashion-mnist is in
        ``/usr/share/datasets/fashion-mnist``.
    """
    return _loaded(FASHION_MNIST, folder)


@checked
def cifar10(folder: str | os.PathLike | None = None) -> tuple[Data, Data]:
    """Return CIFAR-10, photographs of ten classes :cite:p:`krizhevsky2009learning`: (train, test) of 50,000 and 10,000.

    Images are (points, 32, 32, 3) from 0 to 1, in the order of the original files; labels are airplane, automobile,
    bird, cat, deer, dog, frog, horse, ship, truck, as 0 to 9.

    Parameters
    ----------
    folder
        As for `mnist`; the file is cifar10.npz, or the original ``cifar-10-python.tar.gz``.
    """
    return _loaded(CIFAR10, folder)


def _loaded(source: Source, folder: str | os.PathLike | None) -> tuple[Data, Data]:
    named = os.environ.get("TUNBRIDGE_DATA") if folder is None else folder
    place = _locate(source, Path(named)) if named else None
    if place is None and folder is not None:
        raise InputError(
            f"{source.npz}, or {' and '.join(source.files)}, in the folder",
            f"neither in {folder}",
            "Check the folder, or leave it out to download them.",
        )
    if place is None:
        place = cache() / source.name
        for name, sha256 in source.files.items():
            fetch(source.address + name, sha256, place)
    x_train, y_train, x_test, y_test = _read(source, place)
    return _data(source, x_train, y_train, place), _data(source, x_test, y_test, place)


def _locate(source: Source, folder: Path) -> Path | None:
    """The .npz file of a data set in a folder, or else the folder with its original files; None if there is neither."""
    if not folder.is_dir():
        raise InputError("a folder with data", f"{folder}, which is not a folder", "Check folder=, or TUNBRIDGE_DATA.")
    if (folder / source.npz).is_file():
        return folder / source.npz
    places = (folder / source.name, folder)
    return next((place for place in places if all((place / name).is_file() for name in source.files)), None)


def _read(source: Source, place: Path) -> formats.Labelled:
    try:
        arrays = formats.npz(place) if place.is_file() else source.read(place)
    except formats.DAMAGED as error:
        raise InputError(f"readable files of {source.name}", f"{place}: {error}", "Get them again.") from error
    labels = tuple(int(label) for label in np.ravel(arrays[1])[: len(source.first)])
    if place.is_dir() and labels != source.first:
        raise InputError(
            f"the labels of {source.name}, which begin {source.first}",
            f"{labels} in {place}",
            "Name another folder: data sets in the format of MNIST have the same file names.",
        )
    return arrays


def _data(source: Source, x: np.ndarray, y: np.ndarray, place: Path) -> Data:
    """Images from 0 to 1, with a channel axis even for a single channel, and labels (points,)."""
    if x.dtype != np.uint8 or x.shape[1:] not in (source.shape, source.shape[:2]) or len(x) != y.size:
        raise InputError(
            f"images of {source.shape} unsigned bytes, and as many labels",
            f"{x.dtype} {x.shape} and labels {y.shape} in {place}",
            "Get the file again.",
        )
    return Data(np.divide(x, 255, dtype=np.float32).reshape(-1, *source.shape), np.ravel(y).astype(np.int32))
