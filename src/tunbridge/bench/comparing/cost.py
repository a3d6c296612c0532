"""The cost of prediction: networks averaged, time, and disk space."""

import pickle
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tunbridge.bench.baselines.base import Fitted
from tunbridge.core.data import check_x
from tunbridge.core.declared import as_floats, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.core.types import Predictive
from tunbridge.inference.linear.posterior import LinearLayer
from tunbridge.inference.linear.variational import VariationalLayer
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.recorded import Recorded
from tunbridge.inference.standardised import inner

NOTHING = {"networks": float("nan"), "ms a row": float("nan"), "MB": float("nan")}
"""The costs of a method that failed."""
_ROWS = 1000
"""How many rows are timed."""


@checked
def cost(posterior: Posterior, x: Any, y: Any) -> dict[str, float]:
    """Networks averaged per prediction, milliseconds per row once compiled, and megabytes of the saved posterior.

    The number of networks is 1 if the prediction is a closed form around one network, and for baselines. Megabytes
    are those of the saved posterior, or of the pickle for a baseline; NaN if a posterior cannot be saved.

    Parameters
    ----------
    posterior
        The posterior to measure.
    x, y
        Rows whose log density is evaluated; the first 1,000 are timed.
    """
    rows = check_x(x)[:_ROWS]
    if not as_floats(y, "y").ndim:
        raise InputError("y as an array (points, ...)", shown(y), "Pass the targets of x.")
    truth = np.asarray(y)[:_ROWS]
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        _answer(posterior.predict(rows), truth)
        seconds.append(time.perf_counter() - began)
    return {
        "networks": float(_networks(posterior)),
        "ms a row": 1e3 * min(seconds) / len(rows),
        "MB": _megabytes(posterior),
    }


def _answer(predictive: Predictive, truth: np.ndarray) -> None:
    jax.block_until_ready(predictive.log_prob(truth))


def _networks(posterior: Posterior) -> int:
    fitted = inner(posterior)
    if isinstance(fitted, Recorded):
        return fitted.shape[0] * fitted.shape[1]
    if fitted.linear or isinstance(fitted, Fitted | LinearLayer | VariationalLayer):
        return 1
    return jax.tree.leaves(fitted.components(fitted.key, None))[0].shape[0]


def _megabytes(posterior: Posterior) -> float:
    fitted = inner(posterior)
    if isinstance(fitted, Fitted):
        return len(pickle.dumps(fitted.learnt)) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        try:
            posterior.save(folder)
        except InputError:
            return float("nan")
        return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6
