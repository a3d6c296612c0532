"""Where rows of a benchmark are kept: one SQLite file, a transaction a row."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tunbridge.core.errors import InputError, LoadError

FORMAT = 1
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
    PRIMARY KEY ({", ".join(IDENTITY)})
);
"""


class Store:
    """A file of rows, which a kill leaves whole; for use as a context.

    Parameters
    ----------
    path
        Of the file, made where there is none.
    rules
        What all its rows were made by: a file of other rules is refused. None takes them as they are.
    """

    def __init__(self, path: str | os.PathLike, rules: Mapping[str, Any] | None = None):
        self.path = Path(path)
        if rules is None and not self.path.is_file():
            raise InputError("a file with results", f"{self.path}, where there is none", "Check the path.")
        with contextlib.ExitStack() as stack:  # what is refused is closed
            try:
                self._base = stack.enter_context(contextlib.closing(sqlite3.connect(self.path, isolation_level=None)))
                self._base.execute("PRAGMA journal_mode=WAL")
                self._base.executescript(_SCHEMA)
                self._agree({} if rules is None else rules)
            except sqlite3.DatabaseError as error:
                raise LoadError(f"{self.path} cannot be read as results ({error}). Name another file.") from error
            stack.pop_all()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._base.close()

    def _agree(self, rules: Mapping[str, Any]) -> None:
        known = {name: json.loads(value) for name, value in self._base.execute("SELECT name, value FROM facts")}
        if known.get("format", FORMAT) > FORMAT:
            raise LoadError(f"{self.path} was written by a newer Tunbridge. Upgrade to read it.")
        for name, value in rules.items():
            if name in known and known[name] != value:
                raise InputError(
                    f"{name} {known[name]}, by which {self.path} was made", f"{value}", "Keep to it, or name another."
                )
        given = {"format": FORMAT, **rules}
        values = [(name, json.dumps(value)) for name, value in given.items()]
        self._base.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?)", values)

    def add(self, row: Mapping[str, Any]) -> None:
        """Keep a row, in one transaction."""
        values = [row[name] for name in (*IDENTITY, *_PLAIN)] + [json.dumps(row[name]) for name in _JSON]
        marks = ", ".join("?" * len(_COLUMNS))
        self._base.execute(f"INSERT OR REPLACE INTO rows ({', '.join(_COLUMNS)}) VALUES ({marks})", values)

    def done(self) -> set[tuple[Any, ...]]:
        """(suite, task, split, method, key) of the rows that are there."""
        return set(self._base.execute(f"SELECT {', '.join(IDENTITY)} FROM rows"))

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order of their names."""
        found = self._base.execute(f"SELECT {', '.join(_COLUMNS)} FROM rows ORDER BY {', '.join(IDENTITY)}")
        plain = len(IDENTITY) + len(_PLAIN)
        parsed = ((*values[:plain], *map(json.loads, values[plain:])) for values in found)
        return [dict(zip(_COLUMNS, values, strict=True)) for values in parsed]
