"""Published results with their sources, and a comparison with ours."""

import dataclasses
import importlib.resources
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tunbridge.bench.benchmark.paired import naive_error, plus_minus
from tunbridge.bench.benchmark.standing import Standing, spans
from tunbridge.core.declared import checked
from tunbridge.core.errors import InputError
from tunbridge.core.tables import Listing

_SUITES = ("uci",)
_ROUNDING = 0.01 / math.sqrt(12)
"""Standard deviation of the rounding error of two decimals."""
_OURS = {"RMSE": ("RMSE", 1.0), "LL": ("NLL", -1.0)}
"""Our name for each published score, and the sign that converts ours to it."""
_LOWER = {"RMSE": True, "LL": False}


class PublishedMethod(NamedTuple):
    """One column of a published table."""

    source: str
    spread: str
    """What the published ± means: "standard error", or "standard deviation" over splits."""
    ours: str | None
    """Our corresponding method, if there is one."""
    setup: str
    figures: dict[str, dict[str, list[Any]]]
    """For each data set and score, the value and the number after ±, or None."""


@dataclasses.dataclass(frozen=True)
class Published:
    """A published table.

    Parameters
    ----------
    suite
        The suite with the same tasks.
    splits
        The number of splits of each data set.
    methods
        The columns of the table by name.
    """

    suite: str
    splits: dict[str, int]
    methods: dict[str, PublishedMethod]

    def error(self, method: str, task: str, figure: str) -> float:
        """Standard error of a published value, from its ± and the rounding to two decimals."""
        column = self.methods[method]
        spread = column.figures[task][figure][1] or 0.0
        return math.hypot(spread if column.spread == "standard error" else spread / self.splits[task] ** 0.5, _ROUNDING)


@checked
def published(suite: str = "uci") -> Published:
    """Published results for a suite, with sources and set-ups: probabilistic backpropagation, dropout, ensembles.

    From :cite:t:`hernandez2015probabilistic`, :cite:t:`gal2016dropout` and :cite:t:`lakshminarayanan2017simple`.

    Examples
    --------
    >>> published().methods["PBP"].figures["boston"]
    {'RMSE': [3.01, 0.18], 'LL': [-2.57, 0.09]}
    """
    if suite not in _SUITES:
        raise InputError(f"a suite with a published table: {', '.join(_SUITES)}", repr(suite), "Choose one of these.")
    table = json.loads((importlib.resources.files(__package__) / f"{suite}.json").read_text("utf-8"))
    methods = {name: PublishedMethod(**fields) for name, fields in table["methods"].items()}
    return Published(table["suite"], table["splits"], methods)


def beside(standing: Standing, published: Published) -> Listing:
    """Table with a line per score and data set; sentences say where ours is worse, and how the set-ups differ."""
    tasks = [task for task in standing.tasks if any(task in each.figures for each in published.methods.values())]
    if not tasks:
        raise InputError(f"tasks of {', '.join(published.splits)}", ", ".join(standing.tasks), "Run one of these.")
    rows = []
    for figure in _OURS:
        for task in tasks:
            row = {"figure": figure, "set": task}
            for name, method in published.methods.items():
                head = f"{name} (±sd)" if method.spread == "standard deviation" else name
                row[head] = _printed(method.figures.get(task, {}).get(figure))
            for name in standing.ranks:
                values = _ours(standing, task, name, figure)
                row[f"our {name}"] = plus_minus(float(np.mean(values)), naive_error(values)) if values else "-"
            rows.append(row)
    words = [*_verdicts(standing, published, tasks), *_notes(standing, published, tasks)]
    return Listing(f"{published.suite}: published and ours", rows, words)


def _printed(value: list[Any] | None) -> str:
    if value is None:
        return "-"
    return f"{value[0]:.2f}" if value[1] is None else f"{value[0]:.2f}±{value[1]:.2f}"


def _ours(standing: Standing, task: str, method: str, figure: str) -> list[float]:
    name, sign = _OURS[figure]
    return [sign * value for value in standing.values(task, method, name).values()]


def _verdicts(standing: Standing, published: Published, tasks: list[str]) -> Iterator[str]:
    """Sentences that compare each method with its published counterpart, by the naive errors of both."""
    worse, better, compared = [], 0, 0
    for name, method in published.methods.items():
        for task in tasks:
            for figure in _OURS if method.ours in standing.ranks and task in method.figures else ():
                values = _ours(standing, task, str(method.ours), figure)
                if len(values) < 2:
                    continue
                mean, error = float(np.mean(values)), naive_error(values)
                theirs = method.figures[task][figure][0]
                lost = mean - theirs if _LOWER[figure] else theirs - mean
                errors = lost / math.hypot(error, published.error(name, task, figure))
                compared, better = compared + 1, better + (errors < -2)
                if not errors <= 2:
                    printed = _printed(method.figures[task][figure])
                    worse.append(
                        f"{task}, {figure}: {method.ours} {plus_minus(mean, error)} is worse than {name} {printed} "
                        f"by {errors:.1f} standard errors."
                    )
    if compared:
        yield (
            f"Of {compared} comparisons with the published method of the same kind, ours is worse by more than two "
            f"standard errors in {len(worse)}, better in {better}; chance alone gives each in about one of 44."
        )
    yield from worse


def _notes(standing: Standing, published: Published, tasks: list[str]) -> Iterator[str]:
    covered: dict[str, list[str]] = {}
    for task in tasks:
        splits = spans(row["split"] for row in standing.rows if row["task"] == task and row["status"] == "done")
        covered.setdefault(f"{splits or 'none'} (of {published.splits[task]})", []).append(task)
    yield (
        "Ours covers splits " + "; ".join(f"{splits} of {', '.join(names)}" for splits, names in covered.items()) + "."
    )
    yield (
        "Our settings were chosen on part of each training split, by the same rule and within the same budget for "
        "every method; ± is a naive standard error over splits. Published values have two decimals; the standard "
        "errors in these comparisons include the rounding."
    )
    for name, method in published.methods.items():
        yield f"{name}: {method.source}; ± is a {method.spread}. {method.setup}"
