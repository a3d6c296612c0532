"""Files on disk: replaced in one stroke, held by one process at a time."""

import contextlib
import errno
import json
import logging
import os
import platform
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tunbridge.core.errors import BusyError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

_LOCK = ".tunbridge.lock"
_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system without locks answers."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` once all of it is on disk; until then an old file stays whole.

    Its temporary name is new, so that no file of the user's and no link is written to. Whatever fails leaves nothing.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            sync(file)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def remove_unfinished(path: Path) -> None:
    """Remove what killed processes have left of `replacing` this path. For the holder of its folder's lock alone."""
    for temporary in path.parent.glob(f".{path.name}.{'[0-9a-f]' * 8}.tmp"):
        temporary.unlink(missing_ok=True)


def sync(file: BinaryIO) -> None:
    """Return once everything written to the file is on disk."""
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder, and hold it alone; BusyError where another process or thread holds it, naming that process.

    The lock ends with the process that holds it, however it ends. A folder made here in which nothing was written goes
    again. A file system without locks gives none, which is logged.
    """
    made = not folder.exists()
    path = folder / _LOCK
    with contextlib.ExitStack() as stack:
        while True:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(open(os.open(path, _OPEN, 0o644), "r+b"))
            except (FileExistsError, FileNotFoundError):
                if os.path.lexists(folder) and not folder.is_dir():
                    raise
                continue  # the holder before has just taken its empty folder away
            if not _hold(file, folder):
                yield
                return
            if _is_at(file, path):
                break
            file.close()  # the holder before took the file away between our opening and locking it
        file.seek(0)
        file.truncate()
        file.write(json.dumps({"host": platform.node(), "process": os.getpid()}).encode())
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is held: nobody else can hold it
            if made:
                with contextlib.suppress(OSError):  # not empty
                    folder.rmdir()


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether the open file is what the path names."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _hold(file: BinaryIO, folder: Path) -> bool:
    """Whether the open file is now locked; False where there are no locks."""
    if fcntl is None:
        logger.warning("%s is not locked: this platform has no file locks. Use it from one process.", folder)
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(f"{folder} is in use by {_holder(file)}. Wait until it ends, or name another folder.") from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        logger.warning("%s is not locked: its file system has no locks. Use it from one process.", folder)
        return False
    return True


def _holder(file: BinaryIO) -> str:
    file.seek(0)
    try:
        holder = json.loads(file.read(1000))
        return f"process {int(holder['process'])} on {str(holder['host'])[:80]}"
    except (ValueError, TypeError, KeyError):
        return "another process"
