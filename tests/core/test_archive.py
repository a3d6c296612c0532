import io
import json
import os
import stat
import zipfile

import numpy as np
import pytest

from tunbridge.core import archive
from tunbridge.core.errors import LoadError

FACTS = {"a": [1, None, "é"], "b": {"c": 1.5}}
ARRAYS = {"0": np.arange(6, dtype=np.float32).reshape(2, 3), "1": np.zeros((0, 4), np.int64), "2": np.asarray(True)}


@pytest.fixture
def path(tmp_path):
    archive.write(tmp_path / "folder" / "file.npz", FACTS, ARRAYS)
    return tmp_path / "folder" / "file.npz"


def same(found):
    facts, arrays = found
    return facts == FACTS and all(
        arrays[name].dtype == array.dtype and arrays[name].shape == array.shape and (arrays[name] == array).all()
        for name, array in ARRAYS.items()
    )


def test_what_is_written_is_read_and_numpy_reads_it_too(path):
    assert same(archive.read(path))
    with np.load(path, allow_pickle=False) as file:
        np.testing.assert_array_equal(file["0"], ARRAYS["0"])
        assert json.loads(file["facts.json"]) == FACTS
    assert [entry.name for entry in path.parent.iterdir()] == ["file.npz"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()


def _umask():
    current = os.umask(0)
    os.umask(current)
    return current


def test_a_file_cut_off_anywhere_is_refused(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(LoadError):
            archive.read(path)


def test_a_byte_that_changed_is_noticed_or_does_no_harm(path):
    whole, noticed = path.read_bytes(), 0
    places = range(0, len(whole), 3)
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            assert same(archive.read(path))
        except (LoadError, KeyError):  # an array that is missing is noticed by whoever needs it
            noticed += 1
    assert noticed > 0.5 * len(places)


@pytest.mark.parametrize("data", [b"", b"PK", b"no zip", b"PK\x03\x04 but no more", b"\x93NUMPY\x01\x00"])
def test_other_files_are_refused(data, tmp_path):
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(LoadError):
        archive.read(tmp_path / "x.npz")


def _npy(array, **options):
    np.save(buffer := io.BytesIO(), array, **options)
    return buffer.getvalue()


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


HUGE = _npy(np.zeros(2, np.float32)).replace(b"(2,), }          ", b"(9999999999,), } ")


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("0.npy", _npy(np.zeros(2)))], "not a file that Tunbridge wrote"),
        ([("facts.json", b"{}"), ("../0.npy", b"")], "a member '../0.npy'"),
        ([("facts.json", b"{}"), ("/etc/0.npy", b"")], "a member '/etc/0.npy'"),
        ([("facts.json", b"{}"), ("code.py", b"")], "a member 'code.py'"),
        ([("facts.json", b"{}"), ("0.npy", _npy(np.array([Bomb()], object), allow_pickle=True))], "plain numbers"),
        ([("facts.json", b"{}"), ("0.npy", _npy(np.zeros(2, [("a", "f4")])))], "plain numbers"),
        ([("facts.json", b"{}"), ("0.npy", b"")], "damaged"),
        ([("facts.json", b"{}"), ("0.npy", b"\x93NUMPY\x01\x00\x05\x00__import__('os')")], "plain numbers"),
        ([("facts.json", b"{}"), ("0.npy", _npy(np.zeros(2, np.float32))[:-1])], "does not have the shape"),
        ([("facts.json", b"{}"), ("0.npy", HUGE)], r"does not have the shape \(9999999999"),
        ([("facts.json", b'{"a": NaN}')], "the number NaN"),
        ([("facts.json", b'{"a": -Infinity}')], "the number -Infinity"),
        ([("facts.json", b"[" * 100_000)], "damaged"),
        ([("facts.json", b"\xff\xfe{")], "damaged"),
        ([("facts.json", b"")], "damaged"),
    ],
)
def test_members_that_no_save_writes_are_refused(members, said, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        for name, data in members:
            file.writestr(zipfile.ZipInfo(name), data)
    with pytest.raises(LoadError, match=said):
        archive.read(tmp_path / "x.npz")


def test_compressed_and_repeated_members_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("facts.json", b"{}")
        file.writestr("0.npy", b"\0" * 10**7)
    with pytest.raises(LoadError, match="compressed"):
        archive.read(tmp_path / "bomb.npz")
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as file:
        file.writestr("facts.json", b"{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("facts.json", b"{}")
    with pytest.raises(LoadError, match="overlap"):
        archive.read(tmp_path / "twice.npz")


@pytest.mark.parametrize("stage", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(stage, path, monkeypatch):
    def fails(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, stage, fails)
    with pytest.raises(OSError, match="No space left"):
        archive.write(path, {}, {})
    monkeypatch.undo()
    assert same(archive.read(path))
    assert [entry.name for entry in path.parent.iterdir()] == ["file.npz"]
