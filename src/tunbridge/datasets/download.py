"""Downloads of data files from their authors' servers: verified, then kept in the user's cache."""

import hashlib
import http.client
import os
import shutil
import sys
import urllib.request
from pathlib import Path

from tunbridge.core.errors import InputError
from tunbridge.core.files import replacing

_SECONDS = 30.0
"""Timeout for a server that sends nothing."""


def cache() -> Path:
    """Return Tunbridge's folder in the user's cache directory of this platform."""
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "tunbridge"


def fetch(address: str, sha256: str, folder: Path) -> Path:
    """Return the path in `folder` of the file at an address, downloaded unless it is there already.

    The file gets its name only when it is complete and its SHA-256 matches: an interrupted download leaves nothing.
    """
    path = folder / address.rpartition("/")[2]
    if path.is_file() and _sha256(path) == sha256:
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(address, timeout=_SECONDS) as response, replacing(path) as file:
            shutil.copyfileobj(response, file)
            file.flush()
            if (digest := _sha256(Path(file.name))) != sha256:
                size = f"{file.tell():,} bytes"
                raise InputError(f"{address} with SHA-256 {sha256}", f"{size} with SHA-256 {digest}", _ELSEWHERE)
    except (OSError, http.client.HTTPException) as error:
        raise InputError(f"{address}, to be kept in {folder}", f"none ({error})", _ELSEWHERE) from error
    return path


_ELSEWHERE = "Try again, or get the file by other means and name its folder: folder=, or TUNBRIDGE_DATA."


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
