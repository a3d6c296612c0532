"""Notes on fits, in sentences."""

from collections.abc import Iterator

import numpy as np

from tunbridge.bench.comparing.compare import Comparison
from tunbridge.bench.comparing.recommend import miscalibrated
from tunbridge.core.types import Predictive


def about(comparison: Comparison) -> list[str]:
    """Return sentences on what failed, and on cuts, miscalibration, uncertainty and notes of each method."""
    words = [f"{name} is not compared: {sentence}" for name, sentence in comparison.failures.items()]
    for row in comparison.rows:
        name = row["method"]
        if name in comparison.failures:
            continue
        predictive = comparison.predictives[name]
        wrong = miscalibrated(row, predictive, comparison.truth)
        cut = [f"{comparison.cuts[name]}."] if name in comparison.cuts else []
        notes = [*cut, *wrong, *_epistemic(predictive), *comparison.posteriors[name].notes]
        words += [f"{name}: {sentence}" for sentence in notes]
    return words


def _epistemic(predictive: Predictive) -> Iterator[str]:
    aleatoric, epistemic = (float(np.mean(part)) for part in (predictive.aleatoric, predictive.epistemic))
    if not np.isfinite(aleatoric):
        yield "its noise has no finite variance: only the epistemic part of its uncertainty is finite."
        return
    share = epistemic / max(aleatoric + epistemic, 1e-300)
    if share < 1e-9:
        yield "it predicts with a single function: its uncertainty has no epistemic part."
    elif share > 0.5:
        yield f"{share:.0%} of its uncertainty is epistemic: more data would help."
