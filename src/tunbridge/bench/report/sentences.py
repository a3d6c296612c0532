"""What the figures of a fit say, in words."""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from tunbridge.bench.compare import Comparison
from tunbridge.core.types import Predictive


def about(comparison: Comparison) -> list[str]:
    """Sentences about all methods, then warnings about each."""
    words = []
    if len(comparison.rows) > 1:
        words.append(
            f"{comparison.best} has the lowest negative log likelihood on the test rows. "
            "Differences between methods on one split may be chance."
        )
    for row in comparison.rows:
        name = row["method"]
        predictive = comparison.predictives[name]
        said = [*_calibration(row, len(comparison.truth)), *_epistemic(predictive), *comparison.posteriors[name].notes]
        words += [f"{name}: {sentence}" for sentence in said]
    return words


def _calibration(row: dict, num: int) -> Iterator[str]:
    """Whether what was claimed held, at the 1 % level for a count of independent rows."""
    if "90 % coverage" in row:
        share = row["90 % coverage"]
        low, high = stats.binom(num, 0.9).interval(0.99)
        if share * num < low:
            yield f"90 % intervals held {share:.0%} of the test rows: they are too narrow."
        elif share * num > high:
            yield f"90 % intervals held {share:.0%} of the test rows: they are wider than needed."
    elif row["ECE"] > 0.1:
        yield f"confidence and accuracy differ by {row['ECE']:.0%} on average: its probabilities are not calibrated."


def _epistemic(predictive: Predictive) -> Iterator[str]:
    aleatoric, epistemic = (float(np.mean(part)) for part in (predictive.aleatoric, predictive.epistemic))
    if not np.isfinite(aleatoric):
        yield "its noise has no variance: of its parts of uncertainty only the epistemic one is finite."
        return
    share = epistemic / max(aleatoric + epistemic, 1e-300)
    if share < 1e-9:
        yield "it has one network only: what it does not know about the function is not in its uncertainty."
    elif share > 0.5:
        yield f"{share:.0%} of its uncertainty is epistemic: more data would help."
