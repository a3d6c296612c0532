"""Images from folders, and over real HTTP from a server of this machine."""

import dataclasses
import functools
import gzip
import hashlib
import http.server
import pickle
import re
import struct
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest

import tunbridge as tb
from tunbridge.datasets import download, formats, images

FIRST = np.array(images.MNIST.first, np.uint8)


def _idx(folder, labels=FIRST):
    """Four small files in the form of MNIST, whose images are of one grey each."""
    folder.mkdir(parents=True, exist_ok=True)
    grey = (25 * np.arange(len(labels))).astype(np.uint8)
    pixels = np.broadcast_to(grey[:, None, None], (len(labels), 28, 28))
    for part, count in (("train", len(labels)), ("t10k", 3)):
        content = struct.pack(">HBB3I", 0, 8, 3, count, 28, 28) + pixels[:count].tobytes()
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
        content = struct.pack(">HBBI", 0, 8, 1, count) + labels[:count].tobytes()
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(content))
    return folder


def _npz(folder, name, shape, **changes):
    x = np.arange(4 * np.prod(shape)).reshape(4, *shape).astype(np.uint8)
    arrays = {"x_train": x, "y_train": np.arange(4), "x_test": x[:2], "y_test": np.arange(2)[:, None], **changes}
    np.savez(folder / name, **arrays)
    return x


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A cache of its own, and no folder of data."""
    monkeypatch.delenv("TUNBRIDGE_DATA", raising=False)
    monkeypatch.setattr(images, "cache", lambda: tmp_path / "cache")
    return tmp_path


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, counts what it is asked for, and cuts files short where told to."""

    asked: list = []
    cut = 0

    def do_GET(self):
        self.asked.append(self.path)
        if not self.cut:
            super().do_GET()
            return
        content = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: -self.cut])

    def log_message(self, *args):
        pass


@pytest.fixture
def served(home, monkeypatch):
    """A server of the four files, as the official address of MNIST, with the class that answers."""
    files = _idx(home / "served")
    answers = type("Answers", (Quiet,), {"asked": [], "cut": 0})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(answers, directory=files))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    digests = {name: hashlib.sha256((files / name).read_bytes()).hexdigest() for name in formats.IDX}
    address = f"http://127.0.0.1:{server.server_port}/"
    monkeypatch.setattr(images, "MNIST", dataclasses.replace(images.MNIST, address=address, files=digests))
    yield answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_idx_files_become_images_from_0_to_1(home):
    train, test = tb.datasets.mnist(_idx(home / "data"))
    assert (train.x.shape, test.x.shape) == ((10, 28, 28, 1), (3, 28, 28, 1))
    assert (train.x.dtype, train.y.dtype) == (np.float32, np.int32)
    np.testing.assert_allclose(train.x[:, 5, 7, 0], 25 * np.arange(10) / 255, rtol=1e-6)
    np.testing.assert_array_equal(train.y, FIRST)


def test_npz_files_are_taken_first_and_keep_their_pixels_in_place(home, monkeypatch):
    x = _npz(home, "cifar10.npz", (32, 32, 3))
    train, test = tb.datasets.cifar10(home)
    np.testing.assert_allclose(train.x, x / 255.0, rtol=1e-6)
    assert test.y.shape == (2,)
    _npz(home, "fashion_mnist.npz", (28, 28))
    monkeypatch.setenv("TUNBRIDGE_DATA", str(home))
    assert tb.datasets.fashion_mnist()[0].x.shape == (4, 28, 28, 1)


def test_the_folder_of_the_environment_is_looked_into_and_one_given_comes_before_it(home, monkeypatch):
    _idx(home / "data" / "fashion-mnist", np.array(images.FASHION_MNIST.first, np.uint8))
    monkeypatch.setenv("TUNBRIDGE_DATA", str(home / "data"))
    assert tb.datasets.fashion_mnist()[0].num == 10
    (home / "other").mkdir()
    _npz(home / "other", "fashion_mnist.npz", (28, 28))
    assert tb.datasets.fashion_mnist(home / "other")[0].num == 4


def test_clothes_are_not_taken_for_digits(home):
    folder = _idx(home / "data", np.array(images.FASHION_MNIST.first, np.uint8))
    assert tb.datasets.fashion_mnist(folder)[0].num == 10
    with pytest.raises(tb.InputError, match="the labels of mnist"):
        tb.datasets.mnist(folder)


def _python2(batch):
    """A pickle as Python 2 wrote the batches: text as byte strings, arrays by their old names."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    def number(value):
        return b"J" + struct.pack("<i", value)

    x, labels = batch
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t" + text(b"b") + b"tR"
    shape = b"(" + number(len(x)) + number(3072) + b"t"
    raw = b"T" + struct.pack("<i", x.size) + x.tobytes()
    array += b"(" + number(1) + shape + dtype + b"\x89" + raw + b"tb"
    listed = b"(" + b"".join(number(int(label)) for label in labels) + b"l"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + listed + b"u."


def _tar(folder, content):
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    with tarfile.open(folder / formats.BATCHES, "w:gz") as archive:
        for number, name in enumerate(names):
            path = folder / name
            path.write_bytes(content(number))
            archive.add(path, f"cifar-10-batches-py/{name}")


def test_the_batches_of_cifar10_become_images(home):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 2, 3, 32, 32), dtype=np.uint8)
    labels = np.array([*images.CIFAR10.first, 7, 5]).reshape(6, 2)
    _tar(home, lambda i: _python2((pixels[i].reshape(2, -1), labels[i])))
    train, test = tb.datasets.cifar10(home)
    wanted = pixels[:5].reshape(10, 3, 32, 32).transpose(0, 2, 3, 1) / 255.0
    np.testing.assert_allclose(train.x, wanted, rtol=1e-6)
    np.testing.assert_array_equal(train.y, labels[:5].ravel())
    np.testing.assert_array_equal(test.y, [7, 5])


class Trap:
    """What would run on being unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemExit",)


def test_a_batch_that_would_run_something_is_refused(home):
    _tar(home, lambda i: pickle.dumps(Trap(), protocol=2))
    with pytest.raises(tb.InputError, match="which no array needs"):
        tb.datasets.cifar10(home)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / formats.IDX[0]).unlink(), "neither in"),
        (lambda folder: (folder / formats.IDX[0]).write_bytes(b"no gzip"), "readable files of mnist"),
        (lambda folder: (folder / formats.IDX[0]).write_bytes(gzip.compress(b"\0\0\x08\x03")), "readable files"),
        (
            lambda folder: (folder / formats.IDX[1]).write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 5, 1]))),
            "announces",
        ),
        (lambda folder: (folder / "mnist.npz").write_bytes(b"PK\3\4"), "readable files of mnist"),
        (lambda folder: np.savez(folder / "mnist.npz", x=np.zeros(3)), "x_train"),
        (lambda folder: _npz(folder, "mnist.npz", (28, 28), x_test=np.zeros((2, 28, 28))), "unsigned bytes"),
        (lambda folder: _npz(folder, "mnist.npz", (28, 28), y_train=np.zeros(9)), "as many labels"),
    ],
)
def test_damaged_files_are_refused(home, spoil, said):
    folder = _idx(home / "data")
    spoil(folder)
    with pytest.raises(tb.InputError, match=said):
        tb.datasets.mnist(folder)


def test_a_folder_that_is_not_there_is_refused(home, monkeypatch):
    monkeypatch.setenv("TUNBRIDGE_DATA", str(home / "nowhere"))
    with pytest.raises(tb.InputError, match="a folder with data"):
        tb.datasets.mnist()


def test_files_are_downloaded_once(home, served):
    assert tb.datasets.mnist()[0].num == 10
    assert sorted(served.asked) == sorted(f"/{name}" for name in formats.IDX)
    assert tb.datasets.mnist()[0].num == 10
    assert len(served.asked) == 4
    assert sorted(path.name for path in (home / "cache" / "mnist").iterdir()) == sorted(formats.IDX)


def test_a_file_that_was_spoilt_in_the_cache_is_downloaded_again(home, served):
    tb.datasets.mnist()
    (home / "cache" / "mnist" / formats.IDX[2]).write_bytes(b"spoilt")
    assert tb.datasets.mnist()[1].num == 3
    assert len(served.asked) == 5


def test_a_file_with_another_checksum_is_refused_and_not_kept(home, served):
    (home / "served" / formats.IDX[0]).write_bytes(b"something else")
    with pytest.raises(tb.InputError, match=r"with SHA-256 .*; got 14 bytes with SHA-256 .*TUNBRIDGE_DATA"):
        tb.datasets.mnist()
    assert list((home / "cache" / "mnist").iterdir()) == []


def test_a_file_that_is_cut_off_is_refused_and_not_kept(home, served):
    served.cut = 10
    with pytest.raises(tb.InputError, match=formats.IDX[0]):
        tb.datasets.mnist()
    assert list((home / "cache" / "mnist").iterdir()) == []


def test_without_a_server_the_way_out_is_said(home, monkeypatch):
    monkeypatch.setattr(images, "MNIST", dataclasses.replace(images.MNIST, address="http://127.0.0.1:9/"))
    with pytest.raises(tb.InputError, match=r"got none .*folder=, or TUNBRIDGE_DATA"):
        tb.datasets.mnist()


def test_a_file_that_the_server_lacks_is_refused(served, home):
    (home / "served" / formats.IDX[0]).unlink()
    with pytest.raises(tb.InputError, match="404"):
        tb.datasets.mnist()


@pytest.mark.parametrize(("platform", "ending"), [("linux", "c"), ("darwin", "Library/Caches"), ("win32", "l")])
def test_the_cache_is_where_the_platform_has_it(monkeypatch, tmp_path, platform, ending):
    monkeypatch.setattr(download.sys, "platform", platform)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "l"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert download.cache() == tmp_path / ending / "tunbridge"


def test_every_download_is_by_https_and_has_a_sha256():
    sources = [thing for thing in vars(images).values() if isinstance(thing, images.Source)]
    assert len(sources) == 3
    for source in sources:
        assert source.address.startswith("https://")
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in source.files.values())
