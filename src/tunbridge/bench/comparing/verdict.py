"""A fit judged in a sentence or two: how far off it is, what guessing would give, and whether its uncertainty holds."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy import stats

from tunbridge import metrics
from tunbridge.core.types import Predictive

_SURE, _DOUBTFUL = 0.01, 0.05
"""How often chance alone may give such a deviation before it is called a fault, or is said to be doubtful."""
_MOST_EXACT = 2000
"""Up to how many rows the distribution of the number of right answers is exact; a normal one stands for more."""


@dataclasses.dataclass(frozen=True)
class Guess:
    """The prediction that the training targets allow without looking at any input.

    Parameters
    ----------
    mean
        Of each output, (outputs,); None for classes.
    shares
        Of each class, (classes,); None for numbers.
    """

    mean: np.ndarray | None = None
    shares: np.ndarray | None = None

    @classmethod
    def of_numbers(cls, y: np.ndarray, weight: np.ndarray) -> "Guess":
        """The mean of the training targets, (points, outputs)."""
        return cls(mean=np.average(np.asarray(y, np.float64).reshape(len(y), -1), axis=0, weights=weight))

    @classmethod
    def of_classes(cls, y: np.ndarray, weight: np.ndarray, classes: int) -> "Guess":
        """The frequencies of classes among the training labels; one that was not seen counts as one row."""
        counts = np.bincount(y, weights=weight, minlength=classes)
        counts = np.where(counts > 0, counts, np.mean(weight))
        return cls(shares=counts / counts.sum())


def verdict(
    name: str,
    predictive: Predictive,
    truth: np.ndarray,
    guess: Guess,
    targets: Sequence[str] = (),
    classes: Sequence[str] = (),
) -> str:
    """What the test rows say about a fit, in words; with how far chance explains it.

    Parameters
    ----------
    name
        The method.
    predictive, truth
        At the test inputs, and what was seen there.
    guess
        What needs no model.
    targets, classes
        The names of what is predicted, and of its classes; "y" and their numbers unless given.
    """
    if guess.shares is not None:
        label = targets[0] if targets else "y"
        return f"{name} {_classes(predictive, truth, guess.shares, label, classes)}"
    assert guess.mean is not None
    return f"{name} {_numbers(predictive, truth, guess.mean, targets)}"


def _numbers(predictive: Predictive, truth: np.ndarray, mean: np.ndarray, targets: Sequence[str]) -> str:
    truth = np.asarray(truth, np.float64).reshape(len(truth), -1)
    squares = (np.asarray(predictive.mean, np.float64).reshape(truth.shape) - truth) ** 2
    guessed = (mean[None] - truth) ** 2
    parts = []
    for output in range(truth.shape[1]):
        label = targets[output] if targets else "y" if truth.shape[1] == 1 else f"y{output + 1}"
        own, other = (np.sqrt(one[:, output].mean()) for one in (squares, guessed))
        parts.append(f"{label} to within {own:.3g} (RMSE); guessing the mean gives {other:.3g}")
    told = _told(((guessed - squares) / guessed.mean(axis=0)).sum(axis=1))
    return f"predicts {'; '.join(parts)}{told}. {_coverage(metrics.coverage(predictive, truth), len(truth))}"


def _coverage(share: float, num: int) -> str:
    """What the share of test rows inside 90 % intervals says."""
    count = round(share * num)
    law = stats.binom(num, 0.9)
    chance = 2 * min(law.cdf(count), law.sf(count - 1))
    said = f"Its 90 % intervals held {share:.0%} of the {num} test rows"
    narrow = count < 0.9 * num
    fault = "too narrow (overconfident)" if narrow else "wider than needed (underconfident)"
    low, high = (end / num for end in law.interval(1 - _DOUBTFUL))
    return f"{said}: {_graded(chance, fault, f'within the {low:.0%} to {high:.0%} that chance allows')}."


def _classes(predictive: Predictive, truth: np.ndarray, shares: np.ndarray, label: str, classes: Sequence[str]) -> str:
    probs = np.asarray(predictive.probs, np.float64)
    right = np.asarray(predictive.mode) == truth
    common = int(np.argmax(shares))
    guess = f"guessing {str(classes[common] if classes else common)!r} each time gives {np.mean(truth == common):.0%}"
    told = _told(right.astype(float) - (truth == common))
    nll, base = -float(np.mean(np.asarray(predictive.log_prob(truth)))), -float(np.mean(np.log(shares[truth])))
    return (
        f"names the right {label} in {right.mean():.0%} of {len(truth)} test rows; {guess}{told}. "
        f"NLL {nll:.3g}; class frequencies alone give {base:.3g}. {_confidence(probs.max(axis=1), right)}"
    )


def _confidence(confidence: np.ndarray, right: np.ndarray) -> str:
    """What the number of right answers says about the probabilities that were given to them."""
    count, num = int(right.sum()), len(right)
    low, high = _tails(confidence, count)
    said = f"Its mean confidence was {confidence.mean():.0%} and it was right in {count / num:.0%}"
    fault = "too sure (overconfident)" if low < high else "less sure than it could be (underconfident)"
    return f"{said}: {_graded(2 * min(low, high), fault, 'within what chance allows')}."


def _tails(probabilities: np.ndarray, count: int) -> tuple[float, float]:
    """P(N <= count) and P(N >= count) of the number N of independent events with these probabilities."""
    if len(probabilities) > _MOST_EXACT:
        sd = max(float(np.sqrt(np.sum(probabilities * (1 - probabilities)))), 1e-12)
        z = (count - probabilities.sum()) / sd
        return float(stats.norm.cdf(z)), float(stats.norm.sf(z))
    law = np.ones(1)
    for p in probabilities:
        law = np.convolve(law, [1 - p, p])
    return float(law[: count + 1].sum()), float(law[count:].sum())


def _graded(chance: float, fault: str, fine: str) -> str:
    """A fault, a doubtful one, or that all is fine, by how often chance alone deviates so much."""
    if chance < _SURE:
        return fault
    if chance < _DOUBTFUL:
        return f"perhaps {fault}; chance alone does that in {chance:.0%} of such tests"
    return fine


def _told(gains: np.ndarray) -> str:
    """Whether rows can tell a fit from guessing, by what it gains in each."""
    if gains.mean() <= 0:
        return ", so it is no better"
    half = stats.t.ppf(0.95, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.inf
    return "" if gains.mean() > half else f", which {len(gains)} rows cannot tell apart"
