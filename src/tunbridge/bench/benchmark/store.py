"""Storage of benchmark results: one SQLite file, one transaction per row."""

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tunbridge.core.declared import checked
from tunbridge.core.errors import BusyError, InputError, LoadError, TunbridgeError

FORMAT = 2
_LITTLE = 2**20
"""With less free space in bytes than this, an I/O error is reported as a full disk."""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
IDENTITY = ("suite", "task", "split", "method", "key")
_PLAIN = ("status", "error", "kind", "train_rows", "test_rows")
_JSON = ("settings", "figures", "cost", "curves", "provenance")
_COLUMNS = (*IDENTITY, *_PLAIN, *_JSON)

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rows (
    suite TEXT NOT NULL, task TEXT NOT NULL, split INTEGER NOT NULL, method TEXT NOT NULL, key INTEGER NOT NULL,
    status TEXT NOT NULL, error TEXT, kind TEXT NOT NULL, train_rows INTEGER, test_rows INTEGER,
    settings TEXT NOT NULL, figures TEXT NOT NULL, cost TEXT NOT NULL, curves TEXT NOT NULL, provenance TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY ({", ".join(IDENTITY)})
);
"""


class Store:
    """A file of result rows that survives a killed process; use it as a context manager.

    Parameters
    ----------
    path
        Path of the file; created if missing.
    rules
        Settings that all rows share: a file made with other settings is refused. None opens an existing file as it is.
    """

    @checked
    def __init__(self, path: str | os.PathLike, rules: Mapping[str, Any] | None = None):
        self.path = Path(path)
        if self.path.is_dir():
            raise InputError("a file for results", f"the folder {self.path}", "Name a file in it.")
        if rules is None and not self.path.is_file():
            raise InputError("a file with results", f"{self.path}, where there is none", "Check the path.")
        with contextlib.ExitStack() as stack:  # close the file if it is refused
            with self._trusting_nothing():
                self._base = stack.enter_context(contextlib.closing(sqlite3.connect(self.path, isolation_level=None)))
                self._agree({} if rules is None else rules)
            stack.pop_all()

    @contextlib.contextmanager
    def _trusting_nothing(self) -> Iterator[None]:
        """Turn an error of SQLite into one that says what to do.

        BusyError if another process holds the file, OSError if the disk is full or the file cannot be opened or
        written, LoadError if it is damaged.
        """
        try:
            yield
        except sqlite3.OperationalError as error:
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if kind in _BUSY:
                raise BusyError(
                    f"{self.path} is in use by another process. Wait until it ends, or name another file."
                ) from error
            if (code := self._system_error(kind)) is None:
                raise self._damaged(error) from error
            raise OSError(code, os.strerror(code), str(self.path)) from error
        except (sqlite3.Error, ValueError, TypeError, LookupError, RecursionError, OverflowError) as error:
            if isinstance(error, TunbridgeError):
                raise
            raise self._damaged(error) from error

    def _system_error(self, kind: int) -> int | None:
        """The system's error code for one of SQLite's; None if the file is at fault."""
        if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return errno.ENOSPC if shutil.disk_usage(self.path.parent).free < _LITTLE else errno.EIO
        if kind in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return errno.EACCES if self.path.parent.is_dir() else errno.ENOENT
        return None

    def _damaged(self, error: Exception) -> LoadError:
        reason = " ".join(str(error).split())[:120]
        return LoadError(f"{self.path} cannot be read as results ({reason}). Name another file, or delete it.")

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._base.close()

    def _agree(self, rules: Mapping[str, Any]) -> None:
        """Refuse a file of something else or by other rules, before anything is changed; then write what is missing."""
        known = self._known()
        if (written := int(known.get("format", FORMAT))) != FORMAT:
            age, way = ("a newer", "Upgrade") if written > FORMAT else ("an older", "Name another file, and run again")
            raise LoadError(f"{self.path} was written by {age} Tunbridge. {way}.")
        for name, value in rules.items():
            if name in known and known[name] != value:
                raise InputError(
                    f"{name} {known[name]}, by which {self.path} was made",
                    f"{value}",
                    "Keep to that, or name another file.",
                )
        self._base.execute("PRAGMA journal_mode=WAL")
        given = {"format": FORMAT, **rules}
        if missing := [(name, json.dumps(given[name])) for name in given if name not in known]:
            with self._base:  # commit, or roll back
                self._base.executescript(f"BEGIN IMMEDIATE; {_SCHEMA}")
                self._base.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?)", missing)

    def _known(self) -> dict[str, Any]:
        """Facts in the file, none if it is new; LoadError if it is a database of something else."""
        names = {
            name for (name,) in self._base.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
        }
        if not names:
            return {}
        columns = [column for _, column, *_ in self._base.execute("PRAGMA table_info(facts)")]
        if names == {"facts", "rows"} and columns == ["name", "value"]:
            facts = dict(self._base.execute("SELECT name, value FROM facts"))
            if "format" in facts:
                return {name: json.loads(value) for name, value in facts.items()}
        shown = ", ".join(sorted(map(str, names)))[:80]
        raise LoadError(f"{self.path} is a database of something else (it holds {shown}). Name another file.")

    def add(self, row: Mapping[str, Any]) -> None:
        """Store a row, in one transaction."""
        values = [row[name] for name in (*IDENTITY, *_PLAIN)] + [json.dumps(row[name]) for name in _JSON]
        marks = ", ".join("?" * (len(_COLUMNS) + 1))
        with self._trusting_nothing():
            self._base.execute(f"INSERT OR REPLACE INTO rows VALUES ({marks})", (*values, _checksum(values)))

    def done(self) -> set[tuple[Any, ...]]:
        """Return (suite, task, split, method, key) of all stored rows."""
        with self._trusting_nothing():
            return set(self._base.execute(f"SELECT {', '.join(IDENTITY)} FROM rows"))

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows, sorted by suite, task, split, method and key."""
        columns, order = ", ".join((*_COLUMNS, "checksum")), ", ".join(IDENTITY)
        with self._trusting_nothing():
            return [_parsed(*values) for values in self._base.execute(f"SELECT {columns} FROM rows ORDER BY {order}")]


def _parsed(*values: Any) -> dict[str, Any]:
    """Decode a row; raise ValueError if it is not what `Store.add` wrote."""
    if _checksum(values[:-1]) != values[-1]:
        raise ValueError(f"the row {values[: len(IDENTITY)]} has changed since it was written")
    row = dict(zip(_COLUMNS, values[:-1], strict=True))
    return row | {name: json.loads(row[name]) for name in _JSON}


def _checksum(values: Sequence[Any]) -> int:
    return zlib.crc32(repr(tuple(values)).encode())
