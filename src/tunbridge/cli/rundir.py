"""The folder of a run: the results in it, and what an interrupted run leaves to resume from.

Only what carries a run's mark is ever removed: its checkpoint folder, and temporary folders of unfinished results.
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from tunbridge.cli import interrupts, options
from tunbridge.core import files
from tunbridge.core.errors import InputError, LoadError

FORMAT = 2
_RUN, _REPORT, _POSTERIOR, _CHECKPOINT = "run.json", "report.html", "posterior.npz", "checkpoint"
_RESULTS = (_RUN, _REPORT, _POSTERIOR)
_PROGRESS = ("state.npz", "steps.npz")
"""Files in a checkpoint from which a fit, or a game of a bandit, resumes."""
_MARK, _TEMPORARY = ".tunbridge.json", ".tunbridge-new-"
_INDIFFERENT = ("out", "overwrite", "quiet", "seconds")
"""Options that do not change what is computed, only how far it goes, where it is written and what is printed."""


class RunDir:
    """A folder with a report and, after `fit`, a posterior and the facts needed to read new rows.

    Parameters
    ----------
    path
        The folder.
    context
        The call that writes to the folder: a later call with the same options resumes it. None if it is only read.
    """

    def __init__(self, path: Path, context: typer.Context | None = None):
        self.path = path
        self._asked = {} if context is None else _asked(context)
        self.report, self.checkpoint = path / _REPORT, path / _CHECKPOINT
        self._mark = self.checkpoint / _MARK
        self._replacing = self._complete = False

    def check(self, overwrite: bool, also: Sequence[str] = ()) -> None:
        """Raise InputError if the folder holds results, or files named in `also`, that may not be overwritten.

        The results of an unfinished run of the same command do not count: the command resumes that run.
        """
        unfinished = self._left()
        if unfinished is None and self._foreign():
            raise InputError(
                "an --out whose checkpoint/ belongs to a run",
                f"{self.checkpoint}, which does not",
                "Name another --out.",
            )
        if unfinished is not None and unfinished["asked"] != self._asked and not overwrite:
            raise InputError(
                "an --out without an unfinished run of another command",
                f"{self.path}, where {json.dumps(unfinished['asked'])} was not finished",
                "Give the same options to resume it, add --overwrite to discard it, or name another --out.",
            )
        results = (*_RESULTS, *also) if unfinished is None else unfinished["replaces"]
        options.check_folder(self.path, results, overwrite, "add --overwrite")

    def _foreign(self) -> bool:
        """Whether the checkpoint folder's path holds something that no run has written."""
        if not self.checkpoint.is_dir():
            return self.checkpoint.exists()
        return any(not path.name.startswith(f".{_MARK}.") for path in self.checkpoint.iterdir())  # a mark being written

    def _left(self) -> dict[str, Any] | None:
        """Return the command of an unfinished run and the results that it replaces; None if there is no such run."""
        try:
            mark = json.loads(self._mark.read_text(encoding="utf-8"))
            return {"asked": dict(mark["asked"]), "replaces": list(map(str, mark["replaces"]))}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise LoadError(f"{self._mark} is damaged ({error}). Delete {self.checkpoint} to start anew.") from error

    @contextlib.contextmanager
    def writing(self, overwrite: bool, also: Sequence[str] = ()) -> Iterator[None]:
        """Check the folder again, since another command may have written to it, and hold its lock meanwhile.

        After an interrupt or a failure the checkpoint stays if the run can be resumed from it; other temporary files
        are removed.
        """
        with files.locked(self.path):
            self.check(overwrite, also)
            for temporary in self.path.glob(f"{_TEMPORARY}*"):
                shutil.rmtree(temporary, ignore_errors=True)
            self._begin()
            try:
                with interrupts.kept():
                    yield
            except KeyboardInterrupt:
                if self._complete:
                    self._discard()
                    raise KeyboardInterrupt(f"The results in {self.path} are complete.") from None
                raise KeyboardInterrupt(self._keep() or "Nothing was saved yet.") from None
            except Exception:
                if sentence := self._keep():
                    print(sentence, file=sys.stderr)
                raise
            self._discard()

    def _begin(self) -> None:
        """Mark the checkpoint folder as this run's own."""
        unfinished = self._left()
        if unfinished is not None and unfinished["asked"] != self._asked:  # --overwrite
            self._discard()
            unfinished = None
        if unfinished is None:
            self.checkpoint.mkdir(exist_ok=True)
            existing = [name for name in _RESULTS if (self.path / name).exists()]
            with files.replacing(self._mark) as file:
                file.write(json.dumps({"asked": self._asked, "replaces": existing}).encode())

    def _keep(self) -> str:
        """Keep the checkpoint if a run can resume from it; return a sentence that says so, or "" if none is kept.

        It is needed if it holds steps, or if only some of the results have been replaced.
        """
        if self._replacing or any(path for name in _PROGRESS for path in self.checkpoint.glob(f"**/{name}")):
            return f"{self.checkpoint} holds the progress so far; the same command resumes from there."
        self._discard()
        return ""

    def _discard(self) -> None:
        """Remove the checkpoint in one step: half of one would not be known as the run's own."""
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.path))
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.checkpoint, temporary / _CHECKPOINT)
        shutil.rmtree(temporary, ignore_errors=True)

    def finish(self, page: str, posterior: Any = None, facts: dict[str, Any] | None = None) -> None:
        """Write the report and, after a fit, the posterior and its facts.

        All files are on disk before any replaces an older one. The posterior is replaced last: a folder without it
        does not count as a fit.
        """
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.path))
        try:
            _write(temporary / _REPORT, page)
            if posterior is not None:
                _write(temporary / _RUN, _with_checksum({"format": FORMAT, **(facts or {})}))
                posterior.save(temporary)
            self._replacing = True
            for name in (_POSTERIOR, _RUN):
                (self.path / name).unlink(missing_ok=True)
            for name in _RESULTS:
                if (temporary / name).exists():
                    os.replace(temporary / name, self.path / name)
            self._complete = True
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def facts(self) -> dict[str, Any]:
        """Return the facts of a fit that `finish` wrote; LoadError if they have changed since."""
        file = self.path / _RUN
        if not file.is_file() or not (self.path / _POSTERIOR).is_file():
            raise InputError(
                "a folder that `tunbridge fit` wrote", f"{self.path}, which holds no fit", "Check the path."
            )
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
            age = facts["format"] - FORMAT
            damaged = age == 0 and facts.pop("checksum") != _checksum(facts)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise LoadError(f"{file} is damaged ({' '.join(str(error).split())[:80]}). Fit again.") from error
        if age > 0:
            raise LoadError(f"{file} was written by a newer Tunbridge. Upgrade to read it.")
        if age < 0:
            raise LoadError(f"{file} was written by an earlier Tunbridge, without a checksum. Fit again.")
        if damaged:
            raise LoadError(f"{file} is damaged (its checksum differs). Fit again.")
        return facts


def _with_checksum(facts: dict[str, Any]) -> str:
    return json.dumps({**facts, "checksum": _checksum(facts)}, indent=1, ensure_ascii=False)


def _checksum(facts: dict[str, Any]) -> int:
    """Checksum of the facts, the same before they are written and after they are read."""
    return zlib.crc32(json.dumps(facts, sort_keys=True, ensure_ascii=False).encode(errors="replace"))


def _write(path: Path, text: str) -> None:
    with files.replacing(path) as file:
        file.write(text.encode(errors="replace"))


def _asked(context: typer.Context) -> dict[str, Any]:
    """Return a command's name with the options that decide what it computes."""
    asked = {name: value for name, value in context.params.items() if name not in _INDIFFERENT}
    return json.loads(json.dumps({"command": context.info_name, **asked}, default=str))


def opened(out: Path, context: typer.Context, data: Path, overwrite: bool, seconds: float | None) -> RunDir:
    """Return the folder of a run; InputError for all that can be known before the table is read."""
    from tunbridge.datasets.table import check_readable

    folder = RunDir(out, context)
    check_readable(data)
    folder.check(overwrite)
    options.check_seconds(seconds)
    return folder
