"""Results of one suite: ranks, gaps to the best method, and on which tasks these are significant."""

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
    """A unit of comparison: methods on the same rows with the same key."""

    task: str
    split: int
    key: int


class Pair(NamedTuple):
    """A method on a task, compared with the best method on that task."""

    task: str
    method: str
    splits: int
    """The number of splits that it finished."""
    mean: float
    error: float
    """The naive standard error of the mean, as papers print it."""
    behind: Interval
    """By how much it is worse than the best on the splits that both finished, with the corrected error."""
    verdict: str
    """One of "best", "worse", "not distinguishable", "no interval" and "none finished"."""

    @property
    def judged(self) -> bool:
        """Whether there are enough splits for an interval."""
        return not np.isnan(self.behind.low)


@dataclasses.dataclass(frozen=True)
class Standing:
    """The results of all methods on one suite.

    A failed fit, or a score that is not finite, ranks last. Ranks are computed on splits for which every method has a
    row; all tasks have equal weight.

    Parameters
    ----------
    suite
        Name of the suite.
    rows
        Its rows: see `tunbridge.bench.Leaderboard`.
    figure
        Name of the score that methods are ranked by.
    level
        Confidence level of the intervals.
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
        finished: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            if row["status"] == "done":
                finished.setdefault((row["task"], row["method"]), []).append(row)
        return finished

    @functools.cached_property
    def cut(self) -> dict[tuple[str, str], int]:
        """Number of finished fits that were stopped before their last step, by task and method."""
        counts = {place: sum("cut" in row.get("provenance", {}) for row in rows) for place, rows in self.done.items()}
        return {place: count for place, count in counts.items() if count}

    @functools.cached_property
    def losses(self) -> dict[Block, dict[str, float]]:
        """The loss of each method in each block; infinite if it failed."""
        losses: dict[Block, dict[str, float]] = {}
        for row in self.rows:
            block = Block(row["task"], row["split"], row["key"])
            loss = FIGURES[self.figure].loss(_value(row, self.figure) if row["status"] == "done" else np.nan)
            losses.setdefault(block, {})[row["method"]] = loss if np.isfinite(loss) else np.inf
        return losses

    @functools.cached_property
    def shared(self) -> list[Block]:
        """The blocks for which every method has a row."""
        methods = {row["method"] for row in self.rows}
        return [block for block, losses in self.losses.items() if losses.keys() == methods]

    @functools.cached_property
    def ranks(self) -> dict[str, Interval]:
        """The mean rank of each method, best first; NaN without shared blocks."""
        names = list(dict.fromkeys(row["method"] for row in self.rows))
        ranks: dict[str, dict[Block, float]] = {name: {} for name in names}
        for block in self.shared:
            places = stats.rankdata([self.losses[block][name] for name in names])
            for name, place in zip(names, places, strict=True):
                ranks[name][block] = float(place)
        intervals = {name: self._mean(ranks[name]) for name in names}
        intervals = {name: _held(each, len(names)) for name, each in intervals.items()}
        return dict(sorted(intervals.items(), key=lambda item: item[1].mean))

    @property
    def best(self) -> str:
        """The method with the lowest mean rank."""
        return next(iter(self.ranks))

    def behind(self, method: str) -> Interval:
        """How much worse a method is than the best one, over blocks that both finished."""
        gaps = {
            block: losses[method] - losses[self.best]
            for block, losses in self.losses.items()
            if np.isfinite([losses.get(method, np.inf), losses.get(self.best, np.inf)]).all()
        }
        return self._mean(gaps)

    def _mean(self, values: dict[Block, float]) -> Interval:
        """Mean over tasks; over splits if there is only one task."""
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
        by_split: dict[int, list[float]] = {}
        for block, value in values.items():
            if block.task == task:
                by_split.setdefault(block.split, []).append(value)
        return {split: float(np.mean(each)) for split, each in by_split.items()}

    def ratio(self, task: str) -> float:
        """Number of test rows of a task divided by that of training rows."""
        ratios = [
            row["test_rows"] / row["train_rows"]
            for place, rows in self.done.items()
            if place[0] == task
            for row in rows
        ]
        return float(np.mean(ratios)) if ratios else np.nan

    def values(self, task: str, method: str, figure: str) -> dict[int, float]:
        """A score for each split that a method finished, averaged over keys."""
        by_block = {
            Block(task, row["split"], row["key"]): _value(row, figure)
            for row in self.done.get((task, method), ())
            if figure in row["figures"]
        }
        return self._by_split(by_block, task)

    @functools.cached_property
    def pairs(self) -> dict[str, list[Pair]]:
        """For each task, every method compared with the best of those that finished the most splits."""
        return {task: self._pairs(task) for task in self.tasks}

    def _pairs(self, task: str) -> list[Pair]:
        present = {row["method"] for row in self.rows if row["task"] == task}
        losses = {name: self._by_split(self._finished(task, name), task) for name in self.ranks if name in present}
        most = max(map(len, losses.values()))
        full = {name: float(np.mean(list(each.values()))) for name, each in losses.items() if len(each) == most > 0}
        best = min(full, key=lambda name: full[name], default=None)
        return [self._pair(task, name, losses[name], best, losses.get(best or "", {})) for name in losses]

    def _finished(self, task: str, method: str) -> dict[Block, float]:
        method_losses = {block: losses[method] for block, losses in self.losses.items() if method in losses}
        return {block: loss for block, loss in method_losses.items() if block.task == task and np.isfinite(loss)}

    def _pair(
        self, task: str, name: str, losses: dict[int, float], best: str | None, best_losses: dict[int, float]
    ) -> Pair:
        gaps = [losses[split] - best_losses[split] for split in losses if split in best_losses]
        behind = over_splits(gaps, self.ratio(task), self.level) if gaps else UNKNOWN
        values = list(self.values(task, name, self.figure).values()) or [np.nan]
        verdict = "best" if name == best else _verdict(behind) if losses else "none finished"
        return Pair(task, name, len(losses), float(np.mean(values)), naive_error(values), behind, verdict)

    def told_worse(self, method: str) -> tuple[int, int]:
        """Number of tasks on which a method is significantly worse than the best, and of tasks with an interval."""
        pairs = [pair for task in self.tasks for pair in self.pairs[task] if pair.method == method]
        return sum(pair.verdict == "worse" for pair in pairs), sum(pair.judged for pair in pairs)

    def missing(self) -> dict[str, dict[str, list[int]]]:
        """Missing splits by method and task: those that other methods have."""
        missing: dict[str, dict[str, list[int]]] = {}
        for block, losses in self.losses.items():
            for name in self.ranks.keys() - losses.keys():
                splits = missing.setdefault(name, {}).setdefault(block.task, [])
                if block.split not in splits:
                    splits.append(block.split)
        return missing


def _held(rank: Interval, most: int) -> Interval:
    """Clip the interval of a mean rank to possible ranks; equal ranks, without a known spread, have none."""
    if not rank.error > 0:
        return rank._replace(low=np.nan, high=np.nan)
    return rank._replace(low=max(rank.low, 1.0), high=min(rank.high, float(most)))


def _value(row: Row, figure: str) -> float:
    """A score of a row; NaN if it is missing or null."""
    value = row["figures"].get(figure)
    return np.nan if value is None else float(value)


def _verdict(behind: Interval) -> str:
    if np.isnan(behind.low):
        return "no interval"
    return "worse" if behind.low > 0 else "not distinguishable"


def spans(numbers: Iterable[int]) -> str:
    """Format integers with consecutive runs as ranges.

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
