"""A file format of JSON and arrays: written atomically, and read as untrusted input.

A file is an uncompressed zip of ``.npy`` arrays and one JSON member, so `numpy.load` opens it too. Nothing that is read
is evaluated, unpickled or extracted to disk, and reading allocates no more memory than the file has bytes.
"""

import json
import math
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tunbridge.core.errors import LoadError
from tunbridge.core.files import replacing

_FACTS = "facts.json"
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(r"\{'descr': '([<|][a-z]\d+)', 'fortran_order': False, 'shape': \(([\d, ]*)\), \} *\n")
_DTYPES = {
    np.dtype(name).newbyteorder("<").str: np.dtype(name).newbyteorder("<")
    for name in [
        "bool",
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        *(f"float{bits}" for bits in (16, 32, 64)),
        *(f"complex{bits}" for bits in (64, 128)),
    ]
}
_SYMPTOMS = (zipfile.BadZipFile, ValueError, LookupError, EOFError, RuntimeError, OverflowError, OSError, struct.error)
"""Exceptions raised by reading a file that was truncated, altered or nested too deeply."""


def write(path: Path, facts: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Write `facts` and `arrays` to a file that replaces `path` once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(facts, allow_nan=False).encode()
    with replacing(path) as file:
        _pack(file, text, arrays)


def _pack(file: BinaryIO, text: bytes, arrays: Mapping[str, np.ndarray]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_FACTS), text)
        for name, array in arrays.items():
            array = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=array.nbytes > 2**30) as member:
                member.write(_header(array))
                member.write(array.reshape(-1).view(np.uint8).data)


def _header(array: np.ndarray) -> bytes:
    text = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    text += " " * (-(len(_MAGIC) + 3 + len(text)) % 64) + "\n"
    return _MAGIC + struct.pack("<H", len(text)) + text.encode()


def read(path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the (facts, arrays) of a file that `write` wrote; LoadError for any other file."""
    with open(path, "rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise LoadError("it is not a file that Tunbridge wrote.")
        try:
            return _unpack(file, os.fstat(file.fileno()).st_size)
        except _SYMPTOMS as error:
            raise LoadError(f"it is damaged ({_first_line(error)}).") from error


def _unpack(file: BinaryIO, length: int) -> tuple[Any, dict[str, np.ndarray]]:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        names = [info.filename for info in members]
        if _FACTS not in names:
            raise LoadError("it is not a file that Tunbridge wrote.")
        for info in members:
            if info.filename != _FACTS and not re.fullmatch(r"\d{1,9}\.npy", info.filename):
                raise LoadError(f"it has a member {info.filename[:40]!r}, which no save writes.")
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise LoadError(f"its member {info.filename} is compressed, which no save writes.")
        if len(set(names)) < len(names) or sum(info.file_size for info in members) > length:
            raise LoadError("its members overlap, which no save writes.")
        facts = json.loads(archive.read(_FACTS), parse_constant=_refuse_constant)
        arrays = {name.removesuffix(".npy"): _array(archive.read(name), name) for name in names if name != _FACTS}
    return facts, arrays


def _array(data: bytes, name: str) -> np.ndarray:
    """The array stored in one member, as a view of its bytes; LoadError unless its header has the form of `write`."""
    start = len(_MAGIC) + 2
    (size,) = struct.unpack("<H", data[len(_MAGIC) : start])
    header = _HEADER.fullmatch(data[start : start + size].decode("latin-1"))
    if data[: len(_MAGIC)] != _MAGIC or header is None or header[1] not in _DTYPES:
        raise LoadError(f"its member {name} is not an array of plain numbers.")
    dtype, shape = _DTYPES[header[1]], tuple(int(axis) for axis in header[2].replace(",", " ").split())
    if math.prod(shape) * dtype.itemsize != len(data) - start - size:
        raise LoadError(f"its member {name} does not have the shape ({header[2]}) that its header states.")
    return np.frombuffer(data, dtype, offset=start + size).reshape(shape)


def _refuse_constant(name: str) -> Any:
    raise LoadError(f"it holds the number {name} where no save writes one.")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
