"""Files from where their authors keep them: checked, then kept in the user's cache."""

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
"""How long a silent server is waited for."""


def cache() -> Path:
    """The folder for what can be downloaded again, as the platform has it."""
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "tunbridge"


def fetch(address: str, sha256: str, folder: Path) -> Path:
    """The file of an address in a folder, downloaded unless it is there already.

    It gets its name once it is whole and its SHA-256 is right: a run that is cut off leaves nothing behind.
    """
    path = folder / address.rpartition("/")[2]
    if path.is_file() and _sha256(path) == sha256:
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(address, timeout=_SECONDS) as response, replacing(path) as file:
            shutil.copyfileobj(response, file)
            file.flush()
            if (found := _sha256(Path(file.name))) != sha256:
                size = f"{file.tell():,} bytes"
                raise InputError(f"{address} with SHA-256 {sha256}", f"{size} with SHA-256 {found}", _ELSEWHERE)
    except (OSError, http.client.HTTPException) as error:
        raise InputError(f"{address}, to be kept in {folder}", f"none ({error})", _ELSEWHERE) from error
    return path


_ELSEWHERE = "Try again, or get the file by other means and name its folder: folder=, or TUNBRIDGE_DATA."


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
