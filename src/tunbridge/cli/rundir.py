"""The folder of a run: what it holds, when it is whole, and what is left of it when a run ends early."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from tunbridge.core.errors import InputError, LoadError

FORMAT = 1
_RUN, _REPORT, _CHECKPOINT = "run.json", "report.html", "checkpoint"
_RESULTS = (_RUN, _REPORT, "posterior.npz")


class RunDir:
    """A folder with a report, and after `fit` a posterior and how its table is read."""

    def __init__(self, path: Path):
        self.path = path
        self.report, self.checkpoint = path / _REPORT, path / _CHECKPOINT

    @contextmanager
    def writing(self, overwrite: bool) -> Iterator[None]:
        """Make the folder. What a run that failed has written goes; what an interrupted one needs to go on stays."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError("a folder as --out", f"the file {self.path}", "Name another.")
        there = [name for name in _RESULTS if (self.path / name).exists()]
        if there and not overwrite:
            raise InputError(
                "an --out without results in it", f"{self.path} with {there[0]}", "Name another, or add --overwrite."
            )
        new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            yield
        except KeyboardInterrupt:
            print(f"\nInterrupted. The same command goes on from where it was: {self.checkpoint} holds it.")
            raise typer.Exit(130) from None
        except BaseException:
            shutil.rmtree(self.path if new else self.checkpoint, ignore_errors=True)
            raise
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def write(self, name: str, text: str) -> None:
        """A file, whole or not at all."""
        temporary = self.path / f"{name}.tmp"
        try:
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, self.path / name)
        finally:
            temporary.unlink(missing_ok=True)

    def save(self, posterior: Any, facts: dict[str, Any], report: str) -> None:
        """All results; the posterior, without which a folder holds no fit, comes last."""
        (self.path / "posterior.npz").unlink(missing_ok=True)
        self.write(_REPORT, report)
        self.write(_RUN, json.dumps({"format": FORMAT, **facts}, indent=1, ensure_ascii=False))
        posterior.save(self.path)

    def facts(self) -> dict[str, Any]:
        """What `save` was told."""
        file = self.path / _RUN
        if not file.is_file() or not (self.path / "posterior.npz").is_file():
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
