"""The folder of a run: what it holds, when it is whole, and what is left of it when a run ends early.

Nothing is removed but what carries the mark of a run: its folder for checkpoints, and folders for results on their way.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from tunbridge.cli.options import check_folder
from tunbridge.core import files
from tunbridge.core.errors import InputError, LoadError

FORMAT = 1
_RUN, _REPORT, _POSTERIOR, _CHECKPOINT = "run.json", "report.html", "posterior.npz", "checkpoint"
_RESULTS = (_RUN, _REPORT, _POSTERIOR)
_MARK, _ASIDE = ".tunbridge.json", ".tunbridge-new-"
_INDIFFERENT = ("out", "overwrite", "quiet", "seconds")
"""Options that do not change what is computed, only how far."""


class RunDir:
    """A folder with a report, and after `fit` a posterior and how its table is read.

    Parameters
    ----------
    path
        The folder.
    context
        The call that writes to it, by whose options a later call knows whether to go on with it; None reads alone.
    """

    def __init__(self, path: Path, context: typer.Context | None = None):
        self.path = path
        self._asked = {} if context is None else _asked(context)
        self.report, self.checkpoint = path / _REPORT, path / _CHECKPOINT
        self._mark = self.checkpoint / _MARK

    def check(self, overwrite: bool, also: Sequence[str] = ()) -> None:
        """InputError unless the folder can be written to, and holds no results, nor these files, or may lose them.

        What an unfinished run of the same command has written does not count: the command goes on with it.
        """
        left = self._left()
        if left is None and self._foreign():
            raise InputError(
                "an --out whose checkpoint/ a run has made", f"{self.checkpoint}, which none has", "Name another --out."
            )
        if left is not None and left["asked"] != self._asked and not overwrite:
            raise InputError(
                "an --out without an unfinished run of another command",
                f"{self.path}, where {json.dumps(left['asked'])} was not finished",
                "Give the same options to go on with it, add --overwrite to drop it, or name another --out.",
            )
        results = (*_RESULTS, *also) if left is None else left["replaces"]
        check_folder(self.path, results, overwrite, "add --overwrite")

    def _foreign(self) -> bool:
        """Whether something is in the place of checkpoints that no run has put there."""
        if not self.checkpoint.is_dir():
            return self.checkpoint.exists()
        return any(not path.name.startswith(f".{_MARK}.") for path in self.checkpoint.iterdir())  # a mark on its way

    def _left(self) -> dict[str, Any] | None:
        """What an unfinished run was asked for, and which results were there before it; None where there is none."""
        try:
            mark = json.loads(self._mark.read_text(encoding="utf-8"))
            return {"asked": dict(mark["asked"]), "replaces": list(map(str, mark["replaces"]))}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise LoadError(f"{self._mark} is damaged ({error}). Delete {self.checkpoint} to start anew.") from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the folder. What is needed to go on after an interrupt or a failure stays; all else that is not a result
        goes.
        """
        with files.locked(self.path):
            for aside in self.path.glob(f"{_ASIDE}*"):
                shutil.rmtree(aside, ignore_errors=True)
            self._begin()
            try:
                yield
            except KeyboardInterrupt:
                raise KeyboardInterrupt(self._keep() or "Nothing was saved yet.") from None
            except Exception:
                if said := self._keep():
                    print(said, file=sys.stderr)
                raise
            self._discard()

    def _begin(self) -> None:
        """Mark the folder for checkpoints as this run's own."""
        left = self._left()
        if left is not None and left["asked"] != self._asked:  # --overwrite
            self._discard()
            left = None
        if left is None:
            self.checkpoint.mkdir(exist_ok=True)
            there = [name for name in _RESULTS if (self.path / name).exists()]
            with files.replacing(self._mark) as file:
                file.write(json.dumps({"asked": self._asked, "replaces": there}).encode())

    def _keep(self) -> str:
        """Keep a checkpoint that holds steps; the sentence that says so, empty where there is nothing to keep."""
        if any(self.checkpoint.glob("**/state.npz")):
            return f"{self.checkpoint} holds what was reached; the same command goes on from there."
        self._discard()
        return ""

    def _discard(self) -> None:
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def finish(self, page: str, posterior: Any = None, facts: dict[str, Any] | None = None) -> None:
        """Write a report, and after a fit the posterior and how its table is read.

        All are on disk before any takes the place of an older one, the posterior last: without it a folder holds no
        fit.
        """
        aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=self.path))
        try:
            _write(aside / _REPORT, page)
            if posterior is not None:
                _write(aside / _RUN, json.dumps({"format": FORMAT, **(facts or {})}, indent=1, ensure_ascii=False))
                posterior.save(aside)
            for name in (_POSTERIOR, _RUN):
                (self.path / name).unlink(missing_ok=True)
            for name in _RESULTS:
                if (aside / name).exists():
                    os.replace(aside / name, self.path / name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def facts(self) -> dict[str, Any]:
        """What `finish` was told of a fit."""
        file = self.path / _RUN
        if not file.is_file() or not (self.path / _POSTERIOR).is_file():
            raise InputError(
                "a folder that `tunbridge fit` wrote", f"{self.path}, which holds no fit", "Check the path."
            )
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
            newer = facts["format"] > FORMAT
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise LoadError(f"{file} is damaged ({' '.join(str(error).split())[:80]}). Fit again.") from error
        if newer:
            raise LoadError(f"{file} was written by a newer Tunbridge. Upgrade to read it.")
        return facts


def _write(path: Path, text: str) -> None:
    with files.replacing(path) as file:
        file.write(text.encode(errors="replace"))


def _asked(context: typer.Context) -> dict[str, Any]:
    """A command, with the options that decide what it computes."""
    options = {name: value for name, value in context.params.items() if name not in _INDIFFERENT}
    return json.loads(json.dumps({"command": context.info_name, **options}, default=str))
