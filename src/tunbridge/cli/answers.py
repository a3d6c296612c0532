"""A predictive as columns of a table."""

from typing import Any

import numpy as np
import pyarrow as pa

from tunbridge.core.tables import distinct
from tunbridge.core.types import Predictive
from tunbridge.datasets.encoding import Encoding


def answers(predictive: Predictive, encoding: Encoding, mass: float, numbers: np.ndarray | None) -> pa.Table:
    """A row a point; with `numbers`, the number of each row in its file comes first."""
    columns: list[tuple[str, Any]] = [] if numbers is None else [("row", numbers)]
    columns += _classes(predictive, encoding) if encoding.classes else _numbers(predictive, encoding, mass)
    names = distinct([name for name, _ in columns])
    return pa.table(dict(zip(names, [values for _, values in columns], strict=True)))


def _numbers(predictive: Predictive, encoding: Encoding, mass: float) -> list[tuple[str, Any]]:
    lower, upper = predictive.interval(mass)
    parts = {
        "mean": predictive.mean,
        "sd": predictive.std,
        f"lower_{100 * mass:g}": lower,
        f"upper_{100 * mass:g}": upper,
        "aleatoric_sd": np.sqrt(predictive.aleatoric),
        "epistemic_sd": np.sqrt(predictive.epistemic),
    }
    targets = enumerate(encoding.targets)
    return [(f"{t.name}_{part}", np.asarray(v)[:, i]) for i, t in targets for part, v in parts.items()]


def _classes(predictive: Predictive, encoding: Encoding) -> list[tuple[str, Any]]:
    probs = np.asarray(predictive.probs)
    return [
        (encoding.targets[0].name, [encoding.classes[i] for i in np.argmax(probs, axis=1)]),
        *((f"p({level})", probs[:, i]) for i, level in enumerate(encoding.classes)),
        ("aleatoric_nats", np.asarray(predictive.aleatoric)),
        ("epistemic_nats", np.asarray(predictive.epistemic)),
    ]
