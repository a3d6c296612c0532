"""Recommend a method, with only such reasons as the test rows support."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from tunbridge import metrics
from tunbridge.bench.comparing.figures import FIGURES
from tunbridge.core.types import Predictive

_LEVEL = 0.9
"""Level of the intervals of differences."""
_DRAWS = 200
"""Simulated sets of labels for the calibration error that chance gives."""
_FEWEST = 5
"""With fewer test rows there is no recommendation."""
_QUICKER, _SAVED = 3.0, 5.0
"""An equally good method is preferred if it trains this many times faster and saves this many seconds."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """Difference in mean log score between the best method and another, in nats per row.

    Parameters
    ----------
    mean, half
        The mean over the test rows, and half the width of its 90 % interval: Student's t on the paired differences.
    """

    mean: float
    half: float

    @property
    def sure(self) -> bool:
        """Whether the interval excludes zero."""
        return self.mean - self.half > 0

    def __str__(self) -> str:
        return f"{self.mean:.2g} ± {self.half:.2g}" if np.isfinite(self.mean) else "infinitely much"


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """Which method to use on data like these.

    Parameters
    ----------
    method
        Name of the recommended method, never a baseline; None if there is no recommendation.
    best
        Name of the method or baseline with the lowest NLL.
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
    """Recommend the method with the lowest NLL, or one that is statistically as good and has another advantage.

    The advantage is that it is calibrated where the best is not, or that it trained much faster. Baselines are
    compared with the methods and never recommended: if one is as good or better, the sentences say so.

    Parameters
    ----------
    rows
        Each method's scores, and its training time in seconds.
    predictives
        Each method's predictive at the test inputs.
    truth
        The test targets.
    baselines
        Which names are baselines.
    cut
        Names of the methods that were stopped before their last step: they are left out.
    """
    several = len(predictives) > 1
    predictives = {name: one for name, one in predictives.items() if name not in cut}
    row = {one["method"]: one for one in rows}
    num = len(np.asarray(truth))
    if several and len(predictives) < 2:
        whole = f"only {next(iter(predictives))}" if predictives else "no fit"
        return Recommendation(None, None, {}, (f"No recommendation: {whole} ran to completion. Raise the time limit.",))
    if len(predictives) < 2 or num < _FEWEST:
        return Recommendation(None, None, {}, ())
    scores = {name: np.asarray(one.log_prob(truth), np.float64) for name, one in predictives.items()}
    means = {name: _worst(score.mean()) for name, score in scores.items()}
    best = max(means, key=lambda name: means[name])
    if not np.isfinite(means[best]):
        return Recommendation(
            None, None, {}, ("No method gives all test rows a finite density, so none is recommended.",)
        )
    differences = {name: _difference(scores[best], score) for name, score in scores.items() if name != best}
    alike = [name for name in predictives if name == best or not differences[name].sure]
    wrong = {name: tuple(miscalibrated(row[name], predictives[name], truth)) for name in alike}
    words = [f"{best} has the lowest NLL on {num} test rows, {-means[best]:.4g} nats per row."]
    words += _other_scores(best, [row[name] for name in predictives])
    words += _apart(differences)
    words += _together(best, alike)
    words += [f"{name}: {sentence}" for name in alike for sentence in wrong[name]]
    words += _about_baselines(alike, baselines)
    ranked = sorted((name for name in predictives if name not in baselines), key=lambda name: -means[name])
    like_best = [name for name in ranked if name in alike]
    sound = [name for name in like_best if not wrong[name]]
    chosen, advice = _advice(best, ranked, like_best, sound, row)
    return Recommendation(chosen, best, differences, (*words, advice))


def _worst(mean: float) -> float:
    return float(mean) if np.isfinite(mean) else -np.inf


def _difference(best: np.ndarray, other: np.ndarray) -> Difference:
    gaps = best - other
    if not np.isfinite(gaps).all():
        return Difference(np.inf, 0.0)
    half = stats.t.ppf(0.5 + _LEVEL / 2, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps))
    return Difference(float(gaps.mean()), float(half))


def _other_scores(best: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence on the scores of the table by which another method is best."""
    others: dict[str, list[str]] = {}
    for label in rows[0]:
        judged = FIGURES.get(label.split(" of ")[0])
        if judged is None or label == "NLL":
            continue
        losses = {row["method"]: judged.loss(row[label]) for row in rows}
        first = min(losses, key=lambda name: losses[name])
        if losses[first] < losses[best]:
            others.setdefault(first, []).append(label)
    if others:
        parts = (f"{name} is best by {_listed(labels)}" for name, labels in others.items())
        yield f"Other scores disagree: {'; '.join(parts)}."


def _apart(differences: Mapping[str, Difference]) -> Iterator[str]:
    behind = sorted((difference.mean, name) for name, difference in differences.items() if difference.sure)
    if behind:
        parts = ", ".join(f"{name} by {differences[name]}" for _, name in behind)
        yield f"The best NLL is ahead of {parts} nats per row (90 % intervals)."


def _together(best: str, alike: list[str]) -> Iterator[str]:
    others = [name for name in alike if name != best]
    if others:
        yield f"The test rows cannot distinguish {_listed(others)} from the best."


def _about_baselines(alike: list[str], baselines: Collection[str]) -> Iterator[str]:
    """A sentence, if a baseline is better than all methods or as good as the best."""
    equal = [name for name in alike if name in baselines]
    if not equal:
        return
    which = f"The baseline{'s' if len(equal) > 1 else ''} {_listed(equal)}"
    are, them = ("are", "them") if len(equal) > 1 else ("is", "it")
    how = (
        "not beaten by any method here"
        if any(name not in baselines for name in alike)
        else "better than every method here"
    )
    yield f"{which} {are} {how}; `tunbridge fit` does not run {them}."


def _advice(
    best: str, ranked: list[str], alike: list[str], sound: list[str], row: Mapping[str, Mapping[str, Any]]
) -> tuple[str | None, str]:
    """The method to use, and why.

    `ranked` are the methods by NLL, `alike` those statistically as good as the best, `sound` those of them that are
    calibrated.
    """
    if not ranked:
        return None, "All of these are baselines: there is no method to recommend."
    if not alike:
        return ranked[0], f"Baselines aside, {ranked[0]} has the lowest NLL: use it if you need a network."
    among = sound or alike
    top, quick = among[0], min(among, key=lambda name: row[name]["seconds"])
    long, short = row[top]["seconds"], row[quick]["seconds"]
    if long > _QUICKER * short and long > short + _SAVED:
        return quick, f"{quick} took {short:.2g} s to fit, {top} {long:.2g} s: use {quick} to save time."
    if sound and sound[0] != alike[0]:
        return top, f"Among the calibrated methods, {top} has the lowest NLL: use {top}."
    return top, f"Use {top}." if top == best else f"Baselines aside, {top} has the lowest NLL: use {top}."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def miscalibrated(row: Mapping[str, Any], predictive: Predictive, truth: Any) -> Iterator[str]:
    """Sentences on miscalibration that is significant at the 1 % level; none for several tasks."""
    num = len(np.asarray(truth))
    if "90 % coverage" in row:
        share = row["90 % coverage"]
        low, high = stats.binom(num, 0.9).interval(0.99)
        if share * num < low:
            yield f"90 % intervals covered {share:.0%} of the test rows: they are too narrow."
        elif share * num > high:
            yield f"90 % intervals covered {share:.0%} of the test rows: they are wider than needed."
    elif "ECE" in row and row["ECE"] > _chance(predictive):
        yield f"confidence and accuracy differ by {row['ECE']:.0%} on average: its probabilities are not calibrated."


def _chance(predictive: Predictive) -> float:
    """The 99 % quantile of the calibration error if the predicted probabilities are correct."""
    probs, rng = np.asarray(predictive.probs, np.float64), np.random.default_rng(0)
    steps = np.cumsum(probs / probs.sum(axis=1, keepdims=True), axis=1)
    drawn = [np.sum(rng.random((len(probs), 1)) > steps[:, :-1], axis=1) for _ in range(_DRAWS)]
    return float(np.quantile([metrics.ece(predictive, labels) for labels in drawn], 0.99))
