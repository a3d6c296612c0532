"""Files on disk: atomic replacement, and locks for folders that only one process may write to."""

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
"""Error codes of file systems without locks."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` once all of it is on disk; until then an old file stays intact.

    The temporary name is new, so that no existing file or link is overwritten. A failure leaves no file behind.
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
    """Remove temporary files that killed calls of `replacing` left for this path; call only while holding the lock."""
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
    """Create the folder and lock it; BusyError, which names the process, if another process or thread holds the lock.

    The lock ends with the process that holds it, however that ends. A folder created here is removed again if nothing
    was written to it. On a file system without locks the folder is not locked, and a warning is logged.
    """
    created = not folder.exists()
    path = folder / _LOCK
    with contextlib.ExitStack() as stack:
        while True:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(open(os.open(path, _OPEN, 0o644), "r+b"))
            except (FileExistsError, FileNotFoundError):
                if os.path.lexists(folder) and not folder.is_dir():
                    raise
                continue  # the previous holder has just removed its empty folder
            if not _hold(file, folder):
                yield
                return
            if _is_at(file, path):
                break
            file.close()  # the previous holder removed the file between our opening and locking it
        file.seek(0)
        file.truncate()
        file.write(json.dumps({"host": platform.node(), "process": os.getpid()}).encode())
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is held: nobody else can hold it
            if created:
                with contextlib.suppress(OSError):  # not empty
                    folder.rmdir()


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _hold(file: BinaryIO, folder: Path) -> bool:
    """Lock the open file and return True; False where locks are not supported; BusyError if another holds it."""
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
