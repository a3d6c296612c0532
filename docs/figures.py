"""What the pages share: figures of committed files, defaults of the code, tables in Markdown.

`python docs/figures.py` writes the figures of README.md anew.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from IPython.display import Markdown

from tunbridge import METHODS, Run, Train
from tunbridge.bench import Leaderboard, published
from tunbridge.bench.benchmark.board import pictures

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?<=<!-- figures -->\n).*?(?=<!-- end of figures -->)", re.S)


def results(name: str) -> dict[str, Any]:
    """A file of benchmarks/results."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    lines = [list(header), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def defaults(*names: str) -> Markdown:
    """The fields of some methods and their defaults, read from the code."""
    found: dict[str, list[str]] = {}
    for column, name in enumerate(names):
        for field in dataclasses.fields(METHODS[name]):
            if field.name != "independence":
                found.setdefault(field.name, [""] * len(names))[column] = f"`{_written(field)}`"
    header = ["", *(METHODS[name].__name__ for name in names)]
    return Markdown(table(header, ([f"`{field}`", *cells] for field, cells in found.items())))


def _written(field: dataclasses.Field) -> str:
    default = field.default_factory() if field.default is dataclasses.MISSING else field.default
    if isinstance(default, Run | Train):
        parts = {part.name: getattr(default, part.name) for part in dataclasses.fields(default)}
        told = (f"{name}={value}" for name, value in parts.items() if value not in (None, 1, 1.0))
        return f"{type(default).__name__}({', '.join(told)})"
    return f"{default:.4g}" if isinstance(default, float) else getattr(default, "__name__", repr(default))


REFERENCES = ("diabetes", "breast_cancer", "wine")


def distances(*methods: str) -> str:
    """How far methods are from long chains of NUTS, their NLL and cost; by default all, ordered by gradients."""
    study = results("sgmcmc_table")
    first = study[REFERENCES[0]]
    measured = sorted(set(first) - {"reference"}, key=lambda name: first[name]["example_gradients"])
    header = ["method", *(part for name in REFERENCES for part in (name, "NLL")), "gradients", "seconds"]
    lines = []
    for method in methods or measured:
        rows = [study[name][method] for name in REFERENCES]
        near = ((f"{r['sliced_wasserstein'] / r['between_halves']:.1f}", f"{r['NLL']:.3f}") for r in rows)
        cost = f"{rows[0]['example_gradients'] / 1e6:.1f} M", f"{rows[0]['seconds']:.1f}"
        lines.append([method, *(part for pair in near for part in pair), *cost])
    truth = (("", f"{study[name]['reference']['NLL']:.3f}") for name in REFERENCES)
    lines.append(["reference", *(part for pair in truth for part in pair), "", ""])
    return table(header, lines)


def scores_of_defaults(stage: str) -> Markdown:
    """Methods with their defaults on seven tables: NLL, coverage of 90 % intervals or accuracy, relative sd."""
    rows = results("defaults")[stage]
    truth = {name: mean(found, "reference", "sd") for name, found in rows.items()}

    def cell(name: str, method: str) -> str:
        if (nll := mean(rows[name], method, "NLL")) is None:
            return ""
        share = mean(rows[name], method, "coverage") or mean(rows[name], method, "accuracy")
        return f"{nll:.2f}, {share:.2f}, {mean(rows[name], method, 'sd') / truth[name]:.1f}"

    return by_method(rows, cell)


def coverages(stage: str) -> Markdown:
    """Coverage of 90 % intervals of methods with their defaults: the mean over splits, and the smallest."""
    rows = results("defaults")[stage]

    def cell(name: str, method: str) -> str:
        values = of_splits(rows[name], method, "coverage")
        return f"{sum(values) / len(values):.2f}, {min(values):.2f}" if values else ""

    return by_method(rows, cell)


def by_method(rows: dict[str, Any], cell: Callable[[str, str], str]) -> Markdown:
    """A row per measured method, and in it a cell per table."""
    methods = {row.split()[0] for found in rows.values() for row in found}
    order = [name for name in (*METHODS, "lastlayer", "reference") if name in methods]
    return Markdown(table(["method", *rows], [[method, *(cell(name, method) for name in rows)] for method in order]))


def of_splits(found: dict[str, Any], method: str, score: str) -> list[float]:
    """A score of a method on each split that has it."""
    return [row[score] for name, row in found.items() if name.split()[0] == method and score in row]


def mean(found: dict[str, Any], method: str, score: str) -> float | None:
    """The mean of a score over the splits that have it."""
    values = of_splits(found, method, score)
    return sum(values) / len(values) if values else None


def leaderboard(suite: str) -> Markdown:
    """The committed run of a suite of the benchmark, or that there is none."""
    if not (ROOT / "benchmarks" / "results" / f"bench_{suite}.json").exists():
        return Markdown(f"No run of this suite is committed yet: `tunbridge bench {suite}` makes one.")
    kept = results(f"bench_{suite}")
    machine = kept["machine"]
    tasks: dict[str, list[str]] = {}
    for row in kept["rows"]:
        tasks.setdefault(row["provenance"]["device"], []).append(row["task"])
    known = {"cpu": f"{machine['cores']} cores {machine['processor']}"}
    places = (f"{', '.join(dict.fromkeys(names))} on {known.get(place, place)}" for place, names in tasks.items())
    made = f"By `{kept['made by']}`, {machine['date']}: {'; '.join(places)}."
    return Markdown(f"{made}\n\n{Leaderboard.of(kept['rows']).to_markdown()}")


def changes(suite: str, figure: str) -> None:
    """Draw a score of the committed run of a suite as its inputs change, one line per method."""
    rows = results(f"bench_{suite}")["rows"]
    look = pictures.looks(sorted({row["method"] for row in rows}))
    pictures.panels(pictures.by_change(rows)[figure], look, "severity", figure, lambda _: None)


def beside(name: str, suite: str = "uci") -> Markdown:
    """A committed run of a suite beside what papers print."""
    return Markdown(Leaderboard.of(results(f"bench_{name}")["rows"]).beside(published(suite)).to_markdown())


def readme() -> str:
    """The figures that README.md holds between its marks."""
    return distances("MAP", "Ensemble(5)", "MCDropout", "SWAG", "Laplace", "BayesByBackprop", "SGHMC", "NUTS") + "\n"


if __name__ == "__main__":
    page = ROOT / "README.md"
    page.write_text(BLOCK.sub(lambda _: readme(), page.read_text()))
