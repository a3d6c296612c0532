"""What a run of active learning has asked and scored so far, on disk before it goes on."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tunbridge.core import files
from tunbridge.core.errors import CheckpointError, LoadError

FILE = "labels.json"
_FORMAT = 1


class Notes:
    """Labels and scores so far; with a path, in a file that is replaced whenever they grow, in a locked folder."""

    def __init__(self, path: Path | None, run: str):
        self.path, self.run = path, run
        self.chosen: list[int] = []
        self.labels: list[Any] = []
        self.rows: list[dict[str, Any]] = []
        if path is not None:
            files.remove_unfinished(path)
            if path.exists():
                self.chosen, self.labels, self.rows = self._read(path)

    def extend(self, chosen: np.ndarray, labels: np.ndarray) -> None:
        """Add labels, which are on disk before they are used."""
        self.chosen += chosen.tolist()
        self.labels += labels.tolist()
        self._write()

    def score(self, row: dict[str, Any]) -> None:
        """Add a row of scores."""
        self.rows.append(row)
        self._write()

    def _write(self) -> None:
        if self.path is not None:
            text = json.dumps([self.chosen, self.labels, self.rows])
            found = {"format": _FORMAT, "run": self.run, "checksum": zlib.crc32(text.encode()), "notes": text}
            with files.replacing(self.path) as file:
                file.write(json.dumps(found).encode())

    def _read(self, path: Path) -> list[list[Any]]:
        try:
            found = json.loads(path.read_bytes())
            if zlib.crc32(found["notes"].encode()) != found["checksum"]:
                raise ValueError("its bytes are not those that were written")
            run, notes = (found["format"], found["run"]), json.loads(found["notes"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LoadError(f"{path} is damaged ({error}). Delete it to start anew.") from error
        if run != (_FORMAT, self.run):
            raise CheckpointError(f"{path} holds another run. Give the same arguments, or name another folder.")
        return notes
