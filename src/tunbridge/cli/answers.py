"""Predictions as a table."""

from typing import Any

import numpy as np
import pyarrow as pa

from tunbridge.core.tables import distinct
from tunbridge.core.types import Predictive
from tunbridge.datasets.encoding import Encoding


def answers(predictive: Predictive, encoding: Encoding, mass: float, numbers: np.ndarray | None) -> pa.Table:
    """Return a table with one row per point; with `numbers`, the row numbers in the file are the first column."""
    columns: list[tuple[str, Any]] = [] if numbers is None else [("row", numbers)]
    columns += _classes(predictive, encoding) if encoding.classes else _numbers(predictive, encoding, mass)
    names = distinct([name for name, _ in columns])
    return pa.table(dict(zip(names, [_column(values) for _, values in columns], strict=True)))


def _column(values: Any) -> Any:
    """A column of numbers from its memory, since PyArrow's own conversion would import pandas; others unchanged."""
    if not isinstance(values, np.ndarray):
        return values
    memory = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, memory])


def _numbers(predictive: Predictive, encoding: Encoding, mass: float) -> list[tuple[str, Any]]:
    lower, upper = predictive.interval(mass)
    statistics = {
        "mean": predictive.mean,
        "sd": predictive.std,
        f"lower_{100 * mass:g}": lower,
        f"upper_{100 * mass:g}": upper,
        "aleatoric_sd": np.sqrt(predictive.aleatoric),
        "epistemic_sd": np.sqrt(predictive.epistemic),
    }
    targets = enumerate(encoding.targets)
    return [
        (f"{target.name}_{statistic}", np.asarray(values)[:, i])
        for i, target in targets
        for statistic, values in statistics.items()
    ]


def _classes(predictive: Predictive, encoding: Encoding) -> list[tuple[str, Any]]:
    probs = np.asarray(predictive.probs)
    return [
        (encoding.targets[0].name, [encoding.classes[i] for i in np.argmax(probs, axis=1)]),
        *((f"p({level})", probs[:, i]) for i, level in enumerate(encoding.classes)),
        ("aleatoric_nats", np.asarray(predictive.aleatoric)),
        ("epistemic_nats", np.asarray(predictive.epistemic)),
    ]
