"""Evaluation of a fitted posterior: scores, probes and curves."""

from typing import Any

import numpy as np

from tunbridge import metrics
from tunbridge.bench.benchmark.task import Held, Rows, Task
from tunbridge.bench.comparing import scores
from tunbridge.bench.comparing.compare import as_scored
from tunbridge.bench.comparing.scores import Curve
from tunbridge.bench.truth.reference import fidelity, load_reference

_NAMES = {"agreement": "agreement", "total_variation": "total variation", "sliced_wasserstein": "sliced Wasserstein"}
_NAMES |= {"sd_ratio": "sd ratio", "mean_error": "mean error"}


def judge(task: Task, train: Rows, held: Held, posterior: Any) -> tuple[dict[str, float], dict[str, Curve]]:
    """Return scores by name and curves by name, in the units of the data."""
    predictive, truth = posterior.predict(held.test.x), as_scored(task.model, train, held.test)
    figures = {name: float(score(predictive, truth)) for name, score in scores.scores(task.model.likelihood).items()}
    curves = {"calibration": scores.calibration(predictive, truth, task.kind == "classes")}
    if task.kind == "numbers":
        sd = scores.epistemic_sd(predictive)
        if sd.any():
            curves["sd by distance"] = scores.by_distance(sd, held.test.x, train.x)
            if held.between is not None:
                figures["in-between"] = float(scores.epistemic_sd(posterior.predict(held.between)).mean() / sd.mean())
        if held.grid is not None:
            curves["function"] = _function(posterior, held.grid)
    if held.outside:
        _strangers(posterior, np.asarray(predictive.entropy), held, figures, curves)
    if held.shifted:
        _shifts(task, train, posterior, held, figures, curves)
    if task.reference is not None:
        reference = load_reference(task.reference)
        near = fidelity(posterior.predict(reference.x), reference)
        figures |= {name: near[label] for label, name in _NAMES.items() if label in near}
    return figures, curves


def _function(posterior: Any, grid: np.ndarray) -> Curve:
    answer = posterior.predict(grid)
    low, high = answer.interval(0.9)
    return scores.curve(grid, answer.mean, low=low, high=high)


def _strangers(posterior: Any, inside: np.ndarray, held: Held, figures: dict, curves: dict) -> None:
    """Add the AUROC with which entropy separates out-of-distribution inputs from the test rows, and its histograms."""
    strange = {name: np.asarray(posterior.predict(x).entropy) for name, x in held.outside.items()}
    areas = []
    for values in strange.values():
        labels = np.repeat([0, 1], [len(inside), len(values)])
        areas.append(metrics.auroc(np.concatenate([inside, values]), labels))
    figures["AUROC"] = float(np.mean(areas))
    everything = np.concatenate(list(strange.values()))
    top = float(max(inside.max(), everything.max(), 1e-9))
    curves["entropy inside"] = scores.histogram(inside, top)
    curves["entropy outside"] = scores.histogram(everything, top)


def _shifts(task: Task, train: Rows, posterior: Any, held: Held, figures: dict, curves: dict) -> None:
    """Add scores on shifted rows as curves over severity, and their means over all shifts."""
    pooled: dict[str, list[float]] = {}
    for change, levels in held.shifted.items():
        values: dict[str, list[float]] = {}
        for rows in levels.values():
            predictive, truth = posterior.predict(rows.x), as_scored(task.model, train, rows)
            for name in ("accuracy", "NLL", "ECE"):
                values.setdefault(name, []).append(float(scores.CLASSES[name](predictive, truth)))
        for name, numbers in values.items():
            curves[f"{name} by {change}"] = scores.curve(list(levels), numbers)
            pooled.setdefault(f"shifted {name}", []).extend(numbers)
    figures |= {name: float(np.mean(numbers)) for name, numbers in pooled.items()}
