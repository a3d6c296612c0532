"""Files from where their authors keep them: checked, then kept in the user's cache."""

import hashlib
import http.client
import os
import secrets
import shutil
import sys
import urllib.request
from pathlib import Path

from tunbridge.core.errors import InputError

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


def fetch(address: str, md5: str, folder: Path) -> Path:
    """The file of an address in a folder, downloaded unless it is there already.

    It gets its name once it is whole and its MD5 is right: a run that is cut off leaves nothing behind.
    """
    name = address.rpartition("/")[2]
    path, temporary = folder / name, folder / f".{name}.{secrets.token_hex(4)}.tmp"
    if path.is_file() and _md5(path) == md5:
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(address, timeout=_SECONDS) as response, open(temporary, "xb") as file:
            shutil.copyfileobj(response, file)
        if (found := _md5(temporary)) != md5:
            size = temporary.stat().st_size
            raise InputError(f"{address} with MD5 {md5}", f"{size:,} bytes with MD5 {found}", _ELSEWHERE)
        os.replace(temporary, path)
    except (OSError, http.client.HTTPException) as error:
        raise InputError(f"{address}, to be kept in {folder}", f"none ({error})", _ELSEWHERE) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


_ELSEWHERE = "Try again, or get the file by other means and name its folder: folder=, or TUNBRIDGE_DATA."


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
