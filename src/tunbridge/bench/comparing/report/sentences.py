"""What the figures of a fit say, in words."""

from collections.abc import Iterator

import numpy as np

from tunbridge.bench.comparing.compare import Comparison
from tunbridge.bench.comparing.recommend import miscalibrated
from tunbridge.core.types import Predictive


def about(comparison: Comparison) -> list[str]:
    """What failed, and what to know of each method."""
    words = [f"{name} is not compared: {sentence}" for name, sentence in comparison.failures.items()]
    for row in comparison.rows:
        name = row["method"]
        if name in comparison.failures:
            continue
        predictive = comparison.predictives[name]
        wrong = miscalibrated(row, predictive, comparison.truth)
        cut = [f"{comparison.cuts[name]}."] if name in comparison.cuts else []
        said = [*cut, *wrong, *_epistemic(predictive), *comparison.posteriors[name].notes]
        words += [f"{name}: {sentence}" for sentence in said]
    return words


def _epistemic(predictive: Predictive) -> Iterator[str]:
    aleatoric, epistemic = (float(np.mean(part)) for part in (predictive.aleatoric, predictive.epistemic))
    if not np.isfinite(aleatoric):
        yield "its noise has no variance: of its parts of uncertainty only the epistemic one is finite."
        return
    share = epistemic / max(aleatoric + epistemic, 1e-300)
    if share < 1e-9:
        yield "it has one function only: what it does not know about that is not in its uncertainty."
    elif share > 0.5:
        yield f"{share:.0%} of its uncertainty is epistemic: more data would help."
