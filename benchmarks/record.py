"""Write results as committed JSON, with a description of the machine."""

import datetime
import fcntl
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def record(name: str, figures: dict[str, Any], command: str | None = None, show: bool = True) -> None:
    machine = {
        "date": datetime.date.today().isoformat(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "command": f"python benchmarks/{command or name + '.py'}",
    }
    path = RESULTS / f"{name}.json"
    text = json.dumps({"machine": machine, **figures}, indent=1) + "\n"
    half = path.with_suffix(".part")
    half.write_text(text)
    half.replace(path)
    if show:
        print(text)


def recorded(name: str) -> dict[str, Any]:
    """The contents of the file, without the description of the machine."""
    path = RESULTS / f"{name}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    found.pop("machine", None)
    return found


def append(name: str, section: str, row: str, found: dict[str, Any], command: str | None = None) -> None:
    """Add a run to those of a row; processes may do so at once."""
    with open(RESULTS / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        runs = recorded(name).get(section, {}).get(row, {"runs": []})["runs"]
        put(name, section, row, {"runs": sorted([*runs, found], key=lambda run: run["seed"])}, command)


def put(name: str, section: str, row: str, found: dict[str, Any], command: str | None = None) -> None:
    """Add one row to a section of the file, and leave the rest unchanged."""
    whole = recorded(name)
    whole.setdefault(section, {})[row] = found
    record(name, whole, command, show=False)
