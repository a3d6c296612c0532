"""A predictive as columns of a table."""

import numpy as np
import pyarrow as pa

from tunbridge.core.types import Predictive
from tunbridge.datasets.encoding import Encoding


def answers(predictive: Predictive, encoding: Encoding, mass: float, numbers: np.ndarray | None) -> pa.Table:
    """A row a point; with `numbers`, the number of each row in its file comes first."""
    columns: dict[str, np.ndarray | list[str]] = {} if numbers is None else {"row": numbers}
    columns |= _classes(predictive, encoding) if encoding.classes else _numbers(predictive, encoding, mass)
    return pa.table(columns)


def _numbers(predictive: Predictive, encoding: Encoding, mass: float) -> dict[str, np.ndarray]:
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
    return {f"{t.name}_{part}": np.asarray(v)[:, i] for i, t in targets for part, v in parts.items()}


def _classes(predictive: Predictive, encoding: Encoding) -> dict[str, np.ndarray | list[str]]:
    name, probs = encoding.targets[0].name, np.asarray(predictive.probs)
    found: dict[str, np.ndarray | list[str]] = {name: [encoding.classes[i] for i in np.argmax(probs, axis=1)]}
    found |= {f"p({level})": probs[:, i] for i, level in enumerate(encoding.classes)}
    nats = {"aleatoric_nats": predictive.aleatoric, "epistemic_nats": predictive.epistemic}
    return found | {part: np.asarray(value) for part, value in nats.items()}
