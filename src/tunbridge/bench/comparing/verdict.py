"""A fit summed up in a sentence or two: its error, what guessing would give, and whether it is calibrated."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy import stats

from tunbridge import metrics
from tunbridge.core.types import Predictive

_SURE, _DOUBTFUL = 0.01, 0.05
"""A deviation with a p-value below the first is called a fault, below the second a possible fault."""
_MOST_EXACT = 2000
"""Up to this many rows the distribution of the number of correct predictions is exact; beyond, it is normal."""


@dataclasses.dataclass(frozen=True)
class Guess:
    """The prediction from the training targets alone, without looking at any input.

    Parameters
    ----------
    mean
        Mean of each output, (outputs,); None for classes.
    shares
        Frequency of each class, (classes,); None for numbers.
    """

    mean: np.ndarray | None = None
    shares: np.ndarray | None = None

    @classmethod
    def of_numbers(cls, y: np.ndarray, weight: np.ndarray) -> "Guess":
        """Guess the weighted mean of the training targets y, (points, outputs)."""
        return cls(mean=np.average(np.asarray(y, np.float64).reshape(len(y), -1), axis=0, weights=weight))

    @classmethod
    def of_classes(cls, y: np.ndarray, weight: np.ndarray, classes: int) -> "Guess":
        """Guess the class frequencies of the training labels; a class that does not occur counts as one row."""
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
    """Sentences about a fit on the test rows: its error beside guessing, and its calibration, as far as chance allows.

    Parameters
    ----------
    name
        The method.
    predictive, truth
        The predictive at the test inputs, and the test targets.
    guess
        The prediction without a model.
    targets, classes
        Names of the targets, and of the classes; "y" and the class numbers by default.
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
        own, other = (np.sqrt(squared_errors[:, output].mean()) for squared_errors in (squares, guessed))
        parts.append(f"{label} to within {own:.3g} (RMSE); guessing the mean gives {other:.3g}")
    clause = _gain_clause(((guessed - squares) / guessed.mean(axis=0)).sum(axis=1))
    return f"predicts {'; '.join(parts)}{clause}. {_coverage(metrics.coverage(predictive, truth), len(truth))}"


def _coverage(share: float, num: int) -> str:
    """A sentence on the share of test rows inside 90 % intervals."""
    count = round(share * num)
    law = stats.binom(num, 0.9)
    chance = 2 * min(law.cdf(count), law.sf(count - 1))
    statement = f"Its 90 % intervals covered {share:.0%} of the {num} test rows"
    narrow = count < 0.9 * num
    fault = "too narrow (overconfident)" if narrow else "wider than needed (underconfident)"
    low, high = (end / num for end in law.interval(1 - _DOUBTFUL))
    return f"{statement}: {_graded(chance, fault, f'within the {low:.0%} to {high:.0%} expected by chance')}."


def _classes(predictive: Predictive, truth: np.ndarray, shares: np.ndarray, label: str, classes: Sequence[str]) -> str:
    probs = np.asarray(predictive.probs, np.float64)
    right = np.asarray(predictive.mode) == truth
    common = int(np.argmax(shares))
    guess = f"guessing {str(classes[common] if classes else common)!r} each time gives {np.mean(truth == common):.0%}"
    clause = _gain_clause(right.astype(float) - (truth == common))
    nll, base = -float(np.mean(np.asarray(predictive.log_prob(truth)))), -float(np.mean(np.log(shares[truth])))
    return (
        f"predicts the right {label} for {right.mean():.0%} of {len(truth)} test rows; {guess}{clause}. "
        f"NLL {nll:.3g}; class frequencies alone give {base:.3g}. {_confidence(probs.max(axis=1), right)}"
    )


def _confidence(confidence: np.ndarray, right: np.ndarray) -> str:
    """A sentence on mean confidence beside accuracy."""
    count, num = int(right.sum()), len(right)
    low, high = _tails(confidence, count)
    statement = f"Its mean confidence was {confidence.mean():.0%} and its accuracy {count / num:.0%}"
    fault = "too sure (overconfident)" if low < high else "less sure than it could be (underconfident)"
    return f"{statement}: {_graded(2 * min(low, high), fault, 'the two agree to within chance')}."


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
    """The fault, the fault with a "perhaps", or `fine`, by the p-value `chance` of the deviation."""
    if chance < _SURE:
        return fault
    if chance < _DOUBTFUL:
        return f"perhaps {fault}; chance alone does this in {chance:.0%} of cases"
    return fine


def _gain_clause(gains: np.ndarray) -> str:
    """Whether the rows show that a fit is better than guessing, given its gain on each row."""
    if gains.mean() <= 0:
        return ", so the model does no better"
    half = stats.t.ppf(0.95, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.inf
    return "" if gains.mean() > half else f", but {len(gains)} test rows are too few to tell the two apart"
