"""Benchmark results as tables: which method is ahead, by how much, and whether that is significant."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tunbridge.bench.benchmark.paired import naive_error, plus_minus
from tunbridge.bench.benchmark.published import Published, beside
from tunbridge.bench.benchmark.standing import Standing, spans
from tunbridge.bench.comparing.figures import FIGURES
from tunbridge.core import tables
from tunbridge.core.declared import checked, shown
from tunbridge.core.errors import InputError
from tunbridge.core.tables import Listing, Row

_ACROSS = 6
"""Number of tasks shown side by side in a terminal."""
_NEEDED: dict[str, Any] = dict.fromkeys(("suite", "task", "method", "status"), str)
_NEEDED |= {"split": int, "key": int, "figures": Mapping, "train_rows": int | None, "test_rows": int | None}
"""What a row needs, and the type of each."""


@dataclasses.dataclass(frozen=True)
class Leaderboard(tables.Tables):
    """The methods of a benchmark compared, suite by suite.

    Errors after ± are naive, s / sqrt(splits), as papers print them. Comparisons use paired differences and the error
    of :cite:t:`nadeau2003inference`, which accounts for training rows that splits share. Over several tasks, intervals
    are Student's t over the task means. A failed fit ranks last, is counted and is listed.

    Parameters
    ----------
    standings
        The standing of each suite, by name.

    Examples
    --------
    >>> row = {"suite": "toy", "task": "curve", "split": 0, "key": 0, "status": "done"}
    >>> row |= {"train_rows": 90, "test_rows": 10}
    >>> scores = {"map": {"NLL": 1.0}, "nuts": {"NLL": 0.5}}
    >>> board = Leaderboard.of([row | {"method": name, "figures": figures} for name, figures in scores.items()])
    >>> board.standings["toy"].best
    'nuts'
    """

    standings: dict[str, Standing]

    @classmethod
    @checked
    def of(cls, rows: Iterable[Row], figure: str | None = None, level: float = 0.95) -> "Leaderboard":
        """Make the leaderboard of some rows.

        Parameters
        ----------
        rows
            One mapping per fit: suite, task, split, method, key, status ("done" or "failed"), error, figures (scores by
            name), train_rows, test_rows.
        figure
            The score to rank by, one of `tunbridge.bench.comparing.figures.FIGURES`; None takes the first of these that
            all finished rows of a suite have.
        level
            Confidence level of the intervals.
        """
        try:
            every = tuple(rows)
        except TypeError as error:  # an array without axes has an iterator that raises
            raise InputError("rows of a benchmark", shown(rows), "Pass rows as stored.") from error
        _refuse(every, figure, level)
        suites = {name: tuple(row for row in every if row["suite"] == name) for name in (row["suite"] for row in every)}
        return cls({name: Standing(name, fits, figure or _figure(fits), level) for name, fits in suites.items()})

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The mean score of each method on a task, and how far it is behind the best, with both standard errors."""
        return [
            {
                "suite": standing.suite,
                "task": pair.task,
                "method": pair.method,
                "figure": standing.figure,
                "splits": pair.splits,
                "mean": pair.mean,
                "naive error": pair.error,
                "behind": pair.behind.mean,
                "corrected error": pair.behind.error,
                "low": pair.behind.low,
                "high": pair.behind.high,
                "verdict": pair.verdict,
            }
            for standing in self.standings.values()
            for task in standing.tasks
            for pair in standing.pairs[task]
        ]

    def to_csv(self) -> str:
        """Return `rows` as CSV, numbers at full precision."""
        return tables.to_csv(self.rows)

    @functools.cached_property
    def tables(self) -> list[Listing]:
        """Ranks and means of each suite, then the failed fits."""
        listings = []
        for standing in self.standings.values():
            starts = range(0, len(standing.tasks), _ACROSS)
            listings += [ranks(standing), *(means(standing, None, slice(start, start + _ACROSS)) for start in starts)]
        failed = self.failed
        return [*listings, Listing("Failed fits", failed)] if failed else listings

    @property
    def failed(self) -> list[dict[str, str]]:
        """The failed fits, grouped by error."""
        places: dict[tuple[str, ...], list[int]] = {}
        for standing in self.standings.values():
            for row in standing.rows:
                if row["status"] == "failed":
                    where = (row["suite"], row["task"], row["method"], str(row.get("error") or "no message"))
                    places.setdefault(where, []).append(row["split"])
        return [
            {"suite": suite, "task": task, "method": method, "splits": spans(splits), "error": error}
            for (suite, task, method, error), splits in places.items()
        ]

    def beside(self, published: Published) -> Listing:
        """Our results beside published ones, for each data set that both have; sentences say where ours are worse.

        Parameters
        ----------
        published
            Published results, from `tunbridge.bench.published`; their suite must be on the leaderboard.
        """
        if published.suite not in self.standings:
            raise InputError(f"rows of the suite {published.suite}", f"{', '.join(self.standings)}", "Run it first.")
        return beside(self.standings[published.suite], published)


def ranks(standing: Standing) -> Listing:
    """Table of the methods of a suite by mean rank."""
    figure, rows = standing.figure, []
    for name, rank in standing.ranks.items():
        fits = [row for row in standing.rows if row["method"] == name]
        worse, judged = standing.told_worse(name)
        row: dict[str, Any] = {"method": name, "mean rank": rank.mean, "interval": _ends(rank.low, rank.high)}
        if FIGURES[figure].pooled:
            behind = standing.behind(name)
            row["behind"] = behind.mean
            row["its interval"] = "-" if name == standing.best else _ends(behind.low, behind.high)
        row |= {"significantly worse": f"{worse} of {judged}", "fits": len(fits)}
        row["failed"] = sum(each["status"] == "failed" for each in fits)
        rows.append(row | ({"cut": _cut(standing, name)} if standing.cut else {}))
    return Listing(f"{standing.suite}: methods by mean rank of {figure}", rows, sentences(standing))


def means(standing: Standing, figure: str | None = None, part: slice = slice(None)) -> Listing:
    """Table of a score by method and task, as mean and naive standard error; `part` selects some of the tasks."""
    figure = figure or standing.figure
    marked = {
        (pair.task, pair.method)
        for task in standing.tasks
        for pair in standing.pairs[task]
        if figure == standing.figure and pair.judged and pair.verdict != "worse"
    } - standing.cut.keys()
    tasks = [task for task in standing.tasks if any(standing.values(task, name, figure) for name in standing.ranks)]
    rows = []
    for name in standing.ranks:
        row = {"method": name}
        for task in tasks[part]:
            values = list(standing.values(task, name, figure).values())
            text = plus_minus(float(np.mean(values)), naive_error(values)) if values else "-"
            sign = "†" if (task, name) in standing.cut else "*" if (task, name) in marked else ""
            row[task] = f"{text}{sign}"
        rows.append(row)
    words = (
        ["Marked *: the best on a task, or not distinguishable from it by the corrected interval."] if marked else []
    )
    if any(task in tasks[part] for task, _ in standing.cut):
        words.append("Marked †: the time limit stopped some of these fits before their last step.")
    return Listing(f"{standing.suite}: {figure}, mean±naive standard error over splits", rows, words)


def sentences(standing: Standing) -> list[str]:
    """Sentences on the ranks: what they cover, how intervals are computed, and what is missing."""
    covered: dict[str, list[str]] = {}
    for task in standing.tasks:
        covered.setdefault(spans(block.split for block in standing.losses if block.task == task), []).append(task)
    words = ["Covers splits " + "; ".join(f"{splits} of {', '.join(tasks)}" for splits, tasks in covered.items()) + "."]
    for name, tasks in standing.missing().items():
        lacks = "; ".join(f"{task} {spans(splits)}" for task, splits in tasks.items())
        words.append(f"{name} was not run on {lacks}: ranks leave these out.")
    if not standing.shared:
        words.append("No split has results from every method, so there are no ranks.")
    several = len({block.task for block in standing.shared}) > 1
    over = "Student's t over task means" if several else "over splits, by Nadeau and Bengio"
    gap = f"Behind: how much worse than {standing.best}, on splits that both finished. " if _pooled(standing) else ""
    words.append(
        f"Here {FIGURES[standing.figure].better} is better. {gap}The {standing.level:.0%} intervals are {over}, for "
        "each method separately; a single value, or ranks that are all equal, have none. Significantly worse: "
        "the number of tasks on which the corrected interval of the paired difference from the best method excludes "
        "zero, of those with an interval."
    )
    failed = sum(row["status"] == "failed" for row in standing.rows)
    if failed:
        words.append(f"{failed} of {len(standing.rows)} fits failed; they rank last.")
    if cut := {name: count for name in standing.ranks if (count := _cut(standing, name))}:
        counts = ", ".join(f"{count} of {name}" for name, count in cut.items())
        words.append(
            f"Fits ended by the time limit: {counts}. They are scored as they stand, but never marked as best."
        )
    endless = sum(np.isinf(loss) for losses in standing.losses.values() for loss in losses.values()) - failed
    if endless:
        words.append(f"{endless} finished fits have no finite {standing.figure}; they rank last.")
    return words


def _cut(standing: Standing, method: str) -> int:
    return sum(count for (_, name), count in standing.cut.items() if name == method)


def _ends(low: float, high: float) -> str:
    return "-" if math.isnan(low) else f"{low:.3g} to {high:.3g}"


def _pooled(standing: Standing) -> bool:
    return FIGURES[standing.figure].pooled


def _figure(rows: Sequence[Row]) -> str:
    done = [row for row in rows if row["status"] == "done"]
    return next((name for name in FIGURES if done and all(name in row["figures"] for row in done)), "NLL")


def _refuse(rows: Sequence[Row], figure: str | None, level: float) -> None:
    if not rows:
        raise InputError("rows of a benchmark", "none", "Run tunbridge bench first.")
    if figure is not None and figure not in FIGURES:
        raise InputError(f"a figure of {', '.join(FIGURES)}", repr(figure), "Leave figure= out to take the first.")
    if not 0 < level < 1:
        raise InputError("a level between 0 and 1", f"{level}", "Write level=0.95.")
    seen = set()
    for row in rows:
        if not isinstance(row, Mapping):
            raise InputError("rows as mappings", shown(row), "Pass rows as stored.")
        lacking = [name for name in _NEEDED if name not in row]
        if lacking:
            raise InputError(f"rows with {', '.join(_NEEDED)}", f"one without {lacking[0]}", "Pass rows as stored.")
        odd = [name for name, kind in _NEEDED.items() if not isinstance(row[name], kind)]
        if odd:
            raise InputError(f"{odd[0]} in a row as stored", shown(row[odd[0]]), "Pass rows as stored.")
        if row["status"] not in ("done", "failed"):
            raise InputError("a status of done or failed", repr(row["status"]), "Pass rows as stored.")
        place = tuple(row[name] for name in ("suite", "task", "split", "method", "key"))
        if place in seen:
            raise InputError("one row per fit", f"{place} twice", "Pass each fit once.")
        seen.add(place)
