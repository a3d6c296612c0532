"""The folder of a run: what it holds, when it is whole, and what is left of it when a run ends early."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from tunbridge.cli.options import check_folder
from tunbridge.core.errors import InputError, LoadError

FORMAT = 1
_RUN, _REPORT, _POSTERIOR, _CHECKPOINT = "run.json", "report.html", "posterior.npz", "checkpoint"
_RESULTS = (_RUN, _REPORT, _POSTERIOR)


class RunDir:
    """A folder with a report, and after `fit` a posterior and how its table is read."""

    def __init__(self, path: Path):
        self.path = path
        self.report, self.checkpoint = path / _REPORT, path / _CHECKPOINT

    def check(self, overwrite: bool) -> None:
        """InputError unless the folder can be written to, and holds no results or may lose them."""
        check_folder(self.path, _RESULTS, overwrite, "add --overwrite")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make the folder. What a run that failed has written goes; what an interrupted one needs to go on stays."""
        new, began = not self.path.exists(), not self.checkpoint.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            yield
        except KeyboardInterrupt:
            print(f"\nInterrupted. The same command goes on from where it was: {self.checkpoint} holds it.")
            raise typer.Exit(130) from None
        except BaseException:
            if began:  # what another, interrupted run has left is its own
                shutil.rmtree(self.path if new else self.checkpoint, ignore_errors=True)
            raise
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def save(self, posterior: Any, facts: dict[str, Any]) -> None:
        """How the table is read, and the posterior, without which a folder holds no fit.

        Both are on disk before either takes the place of an older one.
        """
        text = json.dumps({"format": FORMAT, **facts}, indent=1, ensure_ascii=False)
        with self._aside() as aside:
            (aside / _RUN).write_text(text, encoding="utf-8", errors="replace")
            posterior.save(aside)
            (self.path / _POSTERIOR).unlink(missing_ok=True)
            for name in (_RUN, _POSTERIOR):
                os.replace(aside / name, self.path / name)

    def write_report(self, page: str) -> None:
        """The page, whole or not at all."""
        with self._aside() as aside:
            (aside / _REPORT).write_text(page, encoding="utf-8", errors="replace")
            os.replace(aside / _REPORT, self.report)

    def drop_fit(self) -> None:
        """Take away the posterior of an older run."""
        for name in (_POSTERIOR, _RUN):
            (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def _aside(self) -> Iterator[Path]:
        """A folder in the folder, gone afterwards."""
        aside = self.path / ".new"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def facts(self) -> dict[str, Any]:
        """What `save` was told."""
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
