"""Results as committed JSON, with what they were measured on."""

import datetime
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def record(name: str, figures: dict[str, Any], command: str | None = None) -> None:
    machine = {
        "date": datetime.date.today().isoformat(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "command": f"python benchmarks/{command or name + '.py'}",
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine, **figures}, indent=1) + "\n")
    print(path.read_text())
