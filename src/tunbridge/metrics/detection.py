"""How well a score (such as an uncertainty) separates positives (errors, out-of-distribution points) from the rest."""

from typing import Any

import numpy as np

from tunbridge.core.declared import as_floats
from tunbridge.core.errors import InputError


def auroc(scores: Any, positive: Any) -> float:
    """Area under the ROC curve: the probability that a positive scores above a negative."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(*_checked(scores, positive)))


def aupr(scores: Any, positive: Any) -> float:
    """Area under the precision-recall curve, computed as average precision."""
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(*_checked(scores, positive)))


def fpr95(scores: Any, positive: Any) -> float:
    """False positive rate at the threshold that detects 95 % of the positives."""
    truth, values = _checked(scores, positive)
    caught = np.sort(values[truth])[::-1]
    threshold = caught[int(np.ceil(0.95 * len(caught))) - 1]
    return float(np.mean(values[~truth] >= threshold))


def _checked(scores: Any, positive: Any) -> tuple[np.ndarray, np.ndarray]:
    values, marks = as_floats(scores, "scores").reshape(-1), as_floats(positive, "positive").reshape(-1)
    if not (np.isfinite(values).all() and np.isfinite(marks).all()):
        raise InputError("finite scores, and labels 0 or 1", "NaN or infinity", "Drop these points.")
    truth = marks != 0
    if values.shape != truth.shape:
        raise InputError("one score per label", f"{len(values)} and {len(truth)}", "Pass matching arrays.")
    if truth.all() or not truth.any():
        raise InputError("both positives and negatives", "one kind only", "Pass examples of both.")
    return truth, values
