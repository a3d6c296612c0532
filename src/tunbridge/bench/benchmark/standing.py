"""One suite judged: ranks, what a method is behind by, and on which tasks that can be told."""

import dataclasses
import functools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy import stats

from tunbridge.bench.benchmark.paired import UNKNOWN, Interval, naive_error, over_splits, over_tasks
from tunbridge.bench.comparing.figures import FIGURES
from tunbridge.core.tables import Row


class Block(NamedTuple):
    """What methods are compared on: they had the same rows and the same key."""

    task: str
    split: int
    key: int


class Pair(NamedTuple):
    """A method on a task, beside the best there."""

    task: str
    method: str
    splits: int
    """How many it finished."""
    mean: float
    error: float
    """The naive standard error of the mean, as papers print it."""
    behind: Interval
    """By how much it is worse than the best on the splits that both finished, with the corrected error."""
    verdict: str
    """best, worse, not told apart, no interval, or none finished."""

    @property
    def judged(self) -> bool:
        """Whether there are splits enough for an interval."""
        return not np.isnan(self.behind.low)


@dataclasses.dataclass(frozen=True)
class Standing:
    """The methods of one suite.

    A failed fit, and a figure that is not finite, rank last. Ranks are taken where every method has a row; a task
    counts as much as any other.

    Parameters
    ----------
    suite
        Its name.
    rows
        Its rows: see `tunbridge.bench.Leaderboard`.
    figure
        What methods are ranked by.
    level
        How often an interval holds what it is about.
    """

    suite: str
    rows: tuple[Row, ...]
    figure: str
    level: float

    @property
    def tasks(self) -> list[str]:
        """The tasks, in the order of the rows."""
        return list(dict.fromkeys(row["task"] for row in self.rows))

    @functools.cached_property
    def done(self) -> dict[tuple[str, str], list[Row]]:
        """The finished rows of each task and method."""
        found: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            if row["status"] == "done":
                found.setdefault((row["task"], row["method"]), []).append(row)
        return found

    @functools.cached_property
    def cut(self) -> dict[tuple[str, str], int]:
        """By task and method, how many finished fits were ended before their last step."""
        counts = {place: sum("cut" in row.get("provenance", {}) for row in own) for place, own in self.done.items()}
        return {place: count for place, count in counts.items() if count}

    @functools.cached_property
    def losses(self) -> dict[Block, dict[str, float]]:
        """For each block what each method lost; infinite where it failed."""
        found: dict[Block, dict[str, float]] = {}
        for row in self.rows:
            block = Block(row["task"], row["split"], row["key"])
            loss = FIGURES[self.figure].loss(_value(row, self.figure) if row["status"] == "done" else np.nan)
            found.setdefault(block, {})[row["method"]] = loss if np.isfinite(loss) else np.inf
        return found

    @functools.cached_property
    def shared(self) -> list[Block]:
        """The blocks for which every method has a row."""
        methods = {row["method"] for row in self.rows}
        return [block for block, losses in self.losses.items() if losses.keys() == methods]

    @functools.cached_property
    def ranks(self) -> dict[str, Interval]:
        """The mean rank of each method, best first; without shared blocks it is NaN."""
        names = list(dict.fromkeys(row["method"] for row in self.rows))
        ranks: dict[str, dict[Block, float]] = {name: {} for name in names}
        for block in self.shared:
            places = stats.rankdata([self.losses[block][name] for name in names])
            for name, place in zip(names, places, strict=True):
                ranks[name][block] = float(place)
        found = {name: self._mean(ranks[name]) for name in names}
        found = {name: _held(each, len(names)) for name, each in found.items()}
        return dict(sorted(found.items(), key=lambda item: item[1].mean))

    @property
    def best(self) -> str:
        """The method of the lowest mean rank."""
        return next(iter(self.ranks))

    def behind(self, method: str) -> Interval:
        """By how much a method is worse than the best one, where both finished."""
        gaps = {
            block: losses[method] - losses[self.best]
            for block, losses in self.losses.items()
            if np.isfinite([losses.get(method, np.inf), losses.get(self.best, np.inf)]).all()
        }
        return self._mean(gaps)

    def _mean(self, values: dict[Block, float]) -> Interval:
        """Over tasks; over the splits of one if there is only one."""
        tasks = {task: self._by_split(values, task) for task in dict.fromkeys(block.task for block in values)}
        if not tasks:
            return UNKNOWN
        if len(tasks) == 1:
            ((task, splits),) = tasks.items()
            return over_splits(list(splits.values()), self.ratio(task), self.level)
        return over_tasks([float(np.mean(list(splits.values()))) for splits in tasks.values()], self.level)

    @staticmethod
    def _by_split(values: dict[Block, float], task: str) -> dict[int, float]:
        """The mean over keys for each split of a task."""
        found: dict[int, list[float]] = {}
        for block, value in values.items():
            if block.task == task:
                found.setdefault(block.split, []).append(value)
        return {split: float(np.mean(each)) for split, each in found.items()}

    def ratio(self, task: str) -> float:
        """Test rows for each training row of a task."""
        ratios = [
            row["test_rows"] / row["train_rows"] for place, own in self.done.items() if place[0] == task for row in own
        ]
        return float(np.mean(ratios)) if ratios else np.nan

    def values(self, task: str, method: str, figure: str) -> dict[int, float]:
        """A figure for each split that a method finished, the mean over keys."""
        found = {
            Block(task, row["split"], row["key"]): _value(row, figure)
            for row in self.done.get((task, method), ())
            if figure in row["figures"]
        }
        return self._by_split(found, task)

    @functools.cached_property
    def pairs(self) -> dict[str, list[Pair]]:
        """For each task every method beside the best there, which is one of those that finished most splits."""
        return {task: self._pairs(task) for task in self.tasks}

    def _pairs(self, task: str) -> list[Pair]:
        present = {row["method"] for row in self.rows if row["task"] == task}
        losses = {name: self._by_split(self._finished(task, name), task) for name in self.ranks if name in present}
        most = max(map(len, losses.values()))
        full = {name: float(np.mean(list(each.values()))) for name, each in losses.items() if len(each) == most > 0}
        best = min(full, key=lambda name: full[name], default=None)
        return [self._pair(task, name, losses[name], best, losses.get(best or "", {})) for name in losses]

    def _finished(self, task: str, method: str) -> dict[Block, float]:
        found = {block: losses[method] for block, losses in self.losses.items() if method in losses}
        return {block: loss for block, loss in found.items() if block.task == task and np.isfinite(loss)}

    def _pair(self, task: str, name: str, own: dict[int, float], best: str | None, bests: dict[int, float]) -> Pair:
        gaps = [own[split] - bests[split] for split in own if split in bests]
        behind = over_splits(gaps, self.ratio(task), self.level) if gaps else UNKNOWN
        values = list(self.values(task, name, self.figure).values()) or [np.nan]
        verdict = "best" if name == best else _verdict(behind) if own else "none finished"
        return Pair(task, name, len(own), float(np.mean(values)), naive_error(values), behind, verdict)

    def told_worse(self, method: str) -> tuple[int, int]:
        """On how many tasks a method is told from the best there, and of how many with an interval."""
        own = [pair for task in self.tasks for pair in self.pairs[task] if pair.method == method]
        return sum(pair.verdict == "worse" for pair in own), sum(pair.judged for pair in own)

    def missing(self) -> dict[str, dict[str, list[int]]]:
        """For each method that lacks rows: the tasks, and the splits of each that others have."""
        found: dict[str, dict[str, list[int]]] = {}
        for block, losses in self.losses.items():
            for name in self.ranks.keys() - losses.keys():
                splits = found.setdefault(name, {}).setdefault(block.task, [])
                if block.split not in splits:
                    splits.append(block.split)
        return found


def _held(rank: Interval, most: int) -> Interval:
    """A mean rank whose interval stays among ranks; equal ranks, whose spread is not known, have none."""
    if not rank.error > 0:
        return rank._replace(low=np.nan, high=np.nan)
    return rank._replace(low=max(rank.low, 1.0), high=min(rank.high, float(most)))


def _value(row: Row, figure: str) -> float:
    """A figure of a row; NaN where it has none, or where a store wrote null."""
    value = row["figures"].get(figure)
    return np.nan if value is None else float(value)


def _verdict(behind: Interval) -> str:
    if np.isnan(behind.low):
        return "no interval"
    return "worse" if behind.low > 0 else "not told apart"


def spans(numbers: Iterable[int]) -> str:
    """Whole numbers, runs of them by their ends.

    Examples
    --------
    >>> spans([3, 0, 1, 2, 7])
    '0-3, 7'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)
