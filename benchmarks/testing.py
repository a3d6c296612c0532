"""Cost of the tests and the mutants that they catch: writes docs/testing.md from one measured run of `make test`.

``make testing`` runs both and this. ``python benchmarks/testing.py COSTS`` takes the file that
``pytest -p measure --costs COSTS`` wrote; without COSTS the page is written again from results/testing.json.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

from record import record, recorded

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
SHOWN = 30
TEXT = """\
# Testing

Three commands check three things:

| command | what runs | goal on 2 cores |
| --- | --- | --- |
| `make test` | all but the slow tests, with nothing compiled before | 8 minutes, 2 GB per worker |
| `make test-all` | the slow tests too; `make test-all PYTHON=python3.13 VENV=build/3.13`: another Python | 60 minutes |
| `make docs` | every page, executed; a failing page does not stop the others | 10 minutes |

In `make test` each method but `Auto`, whose fits are those of `Laplace`, is fitted once with its defaults to a line
with unknown noise and an unknown prior scale, whose posterior is known by quadrature. That fit must keep its promise of
accuracy, survive pickling and saving to the bit, and treat unknowns as documented; a quarter of the methods must also
resume an interrupted run to the bit, and a quarter must compile nothing for a table of another length. A sixth of the
likelihoods, a different sixth each week, are combined with priors and networks. Of scikit-learn's checks a forty-eighth
runs on the default estimators, another part each week. PyTorch's answers are recorded in a file
(`tests/model/networks/adapters/torch/torch_recorded.npz`), which is compared with PyTorch itself where that is
installed. `make test-all` adds a twelfth of the pairs of a method and a likelihood or a prior (a different twelfth each
week), all promises with three keys, and the long statistical tests; `TUNBRIDGE_PAIRS=all make test-all` takes all
pairs.

Most of the cost of the tests is compilation, so programs are compiled without optimisation, unless a test is marked
`optimised`, and kept in the user's cache folder, by version of JAX and type of processor.

## What tests cost

{summary}

By folder:

{folders}

The {shown} most expensive tests:

{tests}

## What tests notice

`python benchmarks/mutants.py` changes one sign, factor or index at a time in a copy of the package and runs the fast
tests that should notice the change: **{caught} of {all} are caught**.

{mutants}

This page is written by `make testing`.
"""


def table(head: list[str], rows: list[list]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def summarise(path: str) -> dict:
    """Figures of a run: totals per file, and its most expensive tests."""
    found = json.loads(Path(path).read_text())
    tests = found["tests"]
    files: dict[str, dict] = defaultdict(lambda: {"tests": 0, "cpu": 0.0, "programs": 0})
    workers: dict[str, float] = defaultdict(float)
    for name, costs in tests.items():
        row = files[name.split("::")[0].removeprefix("tests/")]
        row["tests"] += 1
        row["cpu"] = round(row["cpu"] + costs["cpu"], 2)
        row["programs"] += costs["programs"]
        workers[costs["worker"] or "alone"] = round(max(workers[costs["worker"] or "alone"], costs["memory"]))
    dear = sorted(tests, key=lambda name: -tests[name]["cpu"])[:SHOWN]
    return {
        "seconds": round(found["seconds"]),
        "megabytes": dict(workers),
        "files": dict(sorted(files.items())),
        "dearest": {n.removeprefix("tests/"): [round(tests[n]["cpu"], 1), tests[n]["programs"]] for n in dear},
    }


def page(found: dict, mutants: dict) -> str:
    """The text of docs/testing.md."""
    folders: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0])
    for file, row in found["files"].items():
        folder = file.rpartition("/")[0] or "tests"
        folders[folder] = [
            a + b for a, b in zip(folders[folder], (row["tests"], row["cpu"], row["programs"]), strict=True)
        ]
    total = [sum(column) for column in zip(*folders.values(), strict=True)]
    memory = ", ".join(f"{megabytes / 1000:.2f} GB" for megabytes in found["megabytes"].values())
    ordered = sorted(folders.items(), key=lambda item: -item[1][1])
    rows = [[folder, num, f"{cpu:.0f}", programs] for folder, (num, cpu, programs) in ordered]
    return TEXT.format(
        summary=f"{total[0]:,} tests in {found['seconds']} seconds: {total[1]:,.0f} CPU-seconds, {total[2]:,} "
        f"programs. Nothing was compiled before. Peak memory per worker: {memory}.",
        folders=table(["folder", "tests", "CPU-seconds", "programs"], rows),
        shown=len(found["dearest"]),
        tests=table(
            ["CPU-seconds", "programs", "test"],
            [[*figures, f"`{name}`"] for name, figures in found["dearest"].items()],
        ),
        caught=sum(bool(row["caught by"]) for row in mutants.values()),
        all=len(mutants),
        mutants=table(
            ["what", "right", "wrong", "noticed by"],
            [
                [name, *(f"`{' '.join(row[k].split())}`" for k in ("right", "wrong")), _test(row["caught by"])]
                for name, row in mutants.items()
            ],
        ),
    )


def _test(caught: list[str]) -> str:
    return f"`{caught[0].removeprefix('tests/')}`" if caught else "**nothing**"


def main() -> None:
    if sys.argv[1:]:
        record("testing", summarise(sys.argv[1]), "testing.py COSTS", show=False)
    PAGE.write_text(page(recorded("testing"), recorded("mutants")))


if __name__ == "__main__":
    main()
