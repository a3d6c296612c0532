"""Rows of a benchmark as tables: who is ahead, by how much, and whether that can be told."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tunbridge.bench.benchmark.paired import naive_error, plus_minus
from tunbridge.bench.benchmark.published import Published, beside
from tunbridge.bench.benchmark.standing import Standing, spans
from tunbridge.bench.comparing.figures import FIGURES
from tunbridge.core import tables
from tunbridge.core.errors import InputError
from tunbridge.core.tables import Listing, Row

_ACROSS = 6
"""How many tasks a terminal shows side by side."""
_NEEDED = ("suite", "task", "split", "method", "key", "status", "figures", "train_rows", "test_rows")


@dataclasses.dataclass(frozen=True)
class Leaderboard(tables.Tables):
    """Methods of a benchmark side by side, a standing for each suite.

    Errors after ± are naive, s / sqrt(splits), as papers print them. Decisions are by paired differences and the
    error of :cite:t:`nadeau2003inference`, which knows that splits share training rows. Over several tasks an interval
    is Student's over the means of the tasks. A failed fit ranks last, is counted and is named.

    Parameters
    ----------
    standings
        By name of the suite.

    Examples
    --------
    >>> row = {"suite": "toy", "task": "curve", "split": 0, "key": 0, "status": "done"}
    >>> row |= {"train_rows": 90, "test_rows": 10}
    >>> found = {"map": {"NLL": 1.0}, "nuts": {"NLL": 0.5}}
    >>> board = Leaderboard.of([row | {"method": name, "figures": figures} for name, figures in found.items()])
    >>> board.standings["toy"].best
    'nuts'
    """

    standings: dict[str, Standing]

    @classmethod
    def of(cls, rows: Iterable[Row], figure: str | None = None, level: float = 0.95) -> "Leaderboard":
        """The board of some rows.

        Parameters
        ----------
        rows
            One mapping a fit: suite, task, split, method, key, status ("done" or "failed"), error, figures by name,
            train_rows, test_rows.
        figure
            What to rank by, of `tunbridge.bench.comparing.figures.FIGURES`; None takes the first of these that all
            finished rows of a suite have.
        level
            How often an interval holds what it is about.
        """
        every = tuple(rows)
        _refuse(every, figure, level)
        suites = {name: tuple(row for row in every if row["suite"] == name) for name in (row["suite"] for row in every)}
        return cls({name: Standing(name, own, figure or _figure(own), level) for name, own in suites.items()})

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A line for each suite, task and method: its figure, and what it is behind by, with both errors."""
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
        """The lines of `rows`, numbers with all their digits."""
        return tables.to_csv(self.rows)

    @functools.cached_property
    def tables(self) -> list[Listing]:
        """Ranks and means of each suite, then what failed."""
        found = []
        for standing in self.standings.values():
            starts = range(0, len(standing.tasks), _ACROSS)
            found += [ranks(standing), *(means(standing, None, slice(start, start + _ACROSS)) for start in starts)]
        failed = self.failed
        return [*found, Listing("Failed fits", failed)] if failed else found

    @property
    def failed(self) -> list[dict[str, str]]:
        """The fits that failed, those of one error together."""
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
        """Ours beside what papers print, for each set that both have; sentences say where ours is worse.

        Parameters
        ----------
        published
            See `tunbridge.bench.published`; its suite must be on the board.
        """
        if published.suite not in self.standings:
            raise InputError(f"rows of the suite {published.suite}", f"{', '.join(self.standings)}", "Run it first.")
        return beside(self.standings[published.suite], published)


def ranks(standing: Standing) -> Listing:
    """The methods of a suite by mean rank."""
    figure, rows = standing.figure, []
    for name, rank in standing.ranks.items():
        own = [row for row in standing.rows if row["method"] == name]
        worse, judged = standing.told_worse(name)
        row: dict[str, Any] = {"method": name, "mean rank": rank.mean, "interval": _ends(rank.low, rank.high)}
        if FIGURES[figure].pooled:
            behind = standing.behind(name)
            row["behind"] = behind.mean
            row["its interval"] = "-" if name == standing.best else _ends(behind.low, behind.high)
        row |= {"told worse": f"{worse} of {judged}", "fits": len(own)}
        row["failed"] = sum(each["status"] == "failed" for each in own)
        rows.append(row | ({"cut": _cut(standing, name)} if standing.cut else {}))
    return Listing(f"{standing.suite}: methods by mean rank of {figure}", rows, sentences(standing))


def means(standing: Standing, figure: str | None = None, part: slice = slice(None)) -> Listing:
    """A figure of each method on each task that has it, or on a part of these: the mean and naive standard error."""
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
    words = ["Marked *: the best of a task, or not told apart from it by the corrected interval."] if marked else []
    if any(task in tasks[part] for task, _ in standing.cut):
        words.append("Marked †: some of its fits were ended by the time limit, before their last step.")
    return Listing(f"{standing.suite}: {figure}, mean±naive standard error over splits", rows, words)


def sentences(standing: Standing) -> list[str]:
    """What a reader of the ranks must know: what they cover, how intervals are made, what is missing."""
    covered: dict[str, list[str]] = {}
    for task in standing.tasks:
        covered.setdefault(spans(block.split for block in standing.losses if block.task == task), []).append(task)
    words = ["Covers splits " + "; ".join(f"{splits} of {', '.join(tasks)}" for splits, tasks in covered.items()) + "."]
    for name, tasks in standing.missing().items():
        lacks = "; ".join(f"{task} {spans(splits)}" for task, splits in tasks.items())
        words.append(f"{name} was not run on {lacks}: ranks leave these out.")
    if not standing.shared:
        words.append("No split of a task has every method: there are no ranks.")
    several = len({block.task for block in standing.shared}) > 1
    over = "Student's over the means of the tasks" if several else "over splits, Nadeau and Bengio's"
    gap = f"Behind: by how much worse than {standing.best}, where both finished. " if _pooled(standing) else ""
    words.append(
        f"Better is {FIGURES[standing.figure].better}. {gap}Intervals, {standing.level:.0%}, are {over}, each for one "
        "method by itself; one value, or ranks that are all the same, have none. Told worse: tasks on which the "
        "corrected interval of the paired difference from the best there leaves out zero, of those with an interval."
    )
    failed = sum(row["status"] == "failed" for row in standing.rows)
    if failed:
        words.append(f"{failed} of {len(standing.rows)} fits failed; they rank last.")
    if cut := {name: count for name in standing.ranks if (count := _cut(standing, name))}:
        some = ", ".join(f"{count} of {name}" for name, count in cut.items())
        words.append(f"Fits that were ended by the time limit: {some}. They count as they are, and no such is best.")
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
        lacking = [name for name in _NEEDED if name not in row]
        if lacking:
            raise InputError(f"rows with {', '.join(_NEEDED)}", f"one without {lacking[0]}", "Pass rows as stored.")
        if row["status"] not in ("done", "failed"):
            raise InputError("a status of done or failed", repr(row["status"]), "Pass rows as stored.")
        place = tuple(row[name] for name in ("suite", "task", "split", "method", "key"))
        if place in seen:
            raise InputError("one row a fit", f"{place} twice", "Pass each fit once.")
        seen.add(place)
