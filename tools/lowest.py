"""Print pip constraints that pin every dependency to the lowest version that pyproject.toml allows."""

import re
import tomllib
from pathlib import Path

_LOWEST = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?>=([\d.]+)")


def constraints(project: dict) -> list[str]:
    """Constraints, one per dependency with a lower bound: the release that the bound names (3 is 3.0.0)."""
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras["flax"], *extras["keras"]]
    found = [_LOWEST.match(line) for line in asked]
    return [f"{name[1]}=={name[2]}" for name in found if name]


if __name__ == "__main__":
    file = Path(__file__).parents[1] / "pyproject.toml"
    print("\n".join(constraints(tomllib.loads(file.read_text())["project"])))
