"""Which method to use, in words that the test rows support."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from tunbridge import metrics
from tunbridge.core.types import Predictive

_LEVEL = 0.9
"""Of the intervals of differences."""
_DRAWS = 200
"""How many times labels are drawn to see what calibration error chance gives."""
_FEWEST = 5
"""On fewer test rows nothing is said."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """By how much the log score of the best method is above another's, in nats a row.

    Parameters
    ----------
    mean, half
        The mean over the test rows, and half of its 90 % interval: Student's t of the differences row by row.
    """

    mean: float
    half: float

    @property
    def sure(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.mean - self.half > 0

    def __str__(self) -> str:
        return f"{self.mean:.2g} ± {self.half:.2g}" if np.isfinite(self.mean) else "infinitely much"


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """Which method to use on data like these.

    Parameters
    ----------
    method
        Its name; None where the test rows do not say.
    best
        That of the best mean log score.
    differences
        Of every other method from the best.
    sentences
        Why, and what to beware of.
    """

    method: str | None
    best: str | None
    differences: dict[str, Difference]
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.sentences)


def recommend(
    rows: Sequence[Mapping[str, Any]],
    predictives: Mapping[str, Predictive],
    truth: Any,
    baselines: Collection[str] = (),
    cut: Collection[str] = (),
) -> Recommendation:
    """The cheapest method among those that test rows cannot tell from the best, a baseline where one is among them.

    A method whose intervals or probabilities are further off than chance explains is passed over where another is as
    good.

    Parameters
    ----------
    rows
        Each method's scores, and the seconds that it took to fit.
    predictives
        Each method's at the test inputs.
    truth
        The test targets.
    baselines
        The names of those that are baselines.
    cut
        The names of those that were ended before their last step: they are left out.
    """
    several = len(predictives) > 1
    predictives = {name: one for name, one in predictives.items() if name not in cut}
    row = {one["method"]: one for one in rows}
    num = len(np.asarray(truth))
    if several and len(predictives) < 2:
        whole = f"only {next(iter(predictives))}" if predictives else "no fit"
        return Recommendation(None, None, {}, (f"Nothing is recommended: {whole} ran to its end. Give more seconds.",))
    if len(predictives) < 2 or num < _FEWEST:
        return Recommendation(None, None, {}, ())
    scores = {name: np.asarray(one.log_prob(truth), np.float64) for name, one in predictives.items()}
    means = {name: _worst(score.mean()) for name, score in scores.items()}
    best = max(means, key=lambda name: means[name])
    if not np.isfinite(means[best]):
        return Recommendation(None, None, {}, ("No method gives all test rows a finite density: none is recommended.",))
    differences = {name: _difference(scores[best], score) for name, score in scores.items() if name != best}
    alike = [name for name in predictives if name == best or not differences[name].sure]
    warned = {name: tuple(miscalibrated(row[name], predictives[name], truth)) for name in alike}
    sound = [name for name in alike if not warned[name]] or alike
    chosen = min([name for name in sound if name in baselines] or sound, key=lambda name: row[name]["seconds"])
    words = [f"{best} has the best log score on {num} test rows, {means[best]:.3g} nats a row."]
    words += _apart(differences)
    words += _together(best, alike)
    words += [f"{name}: {sentence}" for name in alike for sentence in warned[name]]
    words.append(_advice(chosen, len(sound), len(alike), row[chosen]["seconds"], chosen in baselines))
    return Recommendation(chosen, best, differences, tuple(words))


def _worst(mean: float) -> float:
    return float(mean) if np.isfinite(mean) else -np.inf


def _difference(best: np.ndarray, other: np.ndarray) -> Difference:
    gaps = best - other
    if not np.isfinite(gaps).all():
        return Difference(np.inf, 0.0)
    half = stats.t.ppf(0.5 + _LEVEL / 2, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps))
    return Difference(float(gaps.mean()), float(half))


def _apart(differences: Mapping[str, Difference]) -> Iterator[str]:
    behind = sorted((one.mean, name) for name, one in differences.items() if one.sure)
    if behind:
        parts = ", ".join(f"{name} by {differences[name]}" for _, name in behind)
        yield f"It is better than {parts} nats a row (90 % intervals)."


def _together(best: str, alike: list[str]) -> Iterator[str]:
    others = [name for name in alike if name != best]
    if others:
        yield f"These rows cannot tell {_listed(others)} from it."


def _advice(chosen: str, sound: int, alike: int, seconds: float, baseline: bool) -> str:
    if baseline:
        return f"{chosen}, a baseline, is not beaten: use {chosen}."
    if alike == 1:
        return f"Use {chosen}."
    those = "those of them whose claims hold" if sound < alike else "these"
    return f"Of {those} {chosen} was the quickest to fit, {seconds:.2g} s: use {chosen}."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def miscalibrated(row: Mapping[str, Any], predictive: Predictive, truth: Any) -> Iterator[str]:
    """What is wrong with its claims, where chance explains that in one case of a hundred; nothing of several tasks."""
    num = len(np.asarray(truth))
    if "90 % coverage" in row:
        share = row["90 % coverage"]
        low, high = stats.binom(num, 0.9).interval(0.99)
        if share * num < low:
            yield f"90 % intervals held {share:.0%} of the test rows: they are too narrow."
        elif share * num > high:
            yield f"90 % intervals held {share:.0%} of the test rows: they are wider than needed."
    elif "ECE" in row and row["ECE"] > _chance(predictive):
        yield f"confidence and accuracy differ by {row['ECE']:.0%} on average: its probabilities are not calibrated."


def _chance(predictive: Predictive) -> float:
    """The calibration error that probabilities which are right stay below, 99 times of 100."""
    probs, rng = np.asarray(predictive.probs, np.float64), np.random.default_rng(0)
    steps = np.cumsum(probs / probs.sum(axis=1, keepdims=True), axis=1)
    drawn = [np.sum(rng.random((len(probs), 1)) > steps[:, :-1], axis=1) for _ in range(_DRAWS)]
    return float(np.quantile([metrics.ece(predictive, labels) for labels in drawn], 0.99))
