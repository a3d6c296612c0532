"""Active learning from a pool: fit, select, ask, and again, with every answer on disk before the next question."""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tunbridge import metrics
from tunbridge.applications.acquisition.base import Acquisition, as_costs
from tunbridge.applications.acquisition.notes import FILE, Notes
from tunbridge.core import files, tables
from tunbridge.core.data import Data, check_x, room_for
from tunbridge.core.declared import Count, as_floats, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.core.loaders import as_table
from tunbridge.core.types import Key
from tunbridge.inference.base import Method
from tunbridge.inference.posteriors import Posterior
from tunbridge.metrics.targets import probs
from tunbridge.model.model import Model
from tunbridge.runtime.fingerprint import fingerprint


@dataclasses.dataclass(frozen=True)
class Learning(tables.Table):
    """The result of `learn`: a row per fit, and the labels in the order in which they were asked for."""

    caption = "active learning"
    sentences = ()

    rows: list[dict[str, Any]]
    """Number of labels, and scores on the test rows: accuracy, or RMSE, and NLL."""
    chosen: np.ndarray
    """Indices of the labelled rows of the pool, in order."""
    labels: np.ndarray
    """Their labels."""
    posterior: Posterior
    """The posterior given all labels."""

    def labels_to(self, score: float) -> int | None:
        """Return the fewest labels from which on accuracy was at least (or RMSE at most) this; None if never."""
        name = "accuracy" if "accuracy" in self.rows[0] else "RMSE"
        reached = [
            row["labels"] for row in self.rows if (row[name] >= score if name == "accuracy" else row[name] <= score)
        ]
        return min(reached, default=None)


@checked
def learn(
    model: Model,
    method: Method,
    pool: Any,
    oracle: Any,
    acquisition: Acquisition,
    *,
    test: Any,
    start: Count = 20,
    most: Count = 200,
    batch: Count = 1,
    key: Key,
    folder: str | os.PathLike | None = None,
    costs: Any = None,
    first: Any = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> Learning:
    """Label rows of a pool one batch after another, each selected by the posterior of those before.

    Every round fits the model anew. Its key is a function of `key` and of the number of labels, so that an interrupted
    run that is resumed from its folder ends with the same labels and scores.

    Parameters
    ----------
    model, method
        What is fitted in each round.
    pool
        Inputs (points, ...features).
    oracle
        The labels of all rows of the pool; or a function of the indices (rows,) that returns their labels.
    acquisition
        The rule, such as `BALD`.
    test
        `Data` or a pair (x, y) on which each posterior is scored.
    start, most, batch
        Labels at the start, at the end, and per round.
    key
        The key.
    folder
        Where labels and scores are kept, each on disk before the next is asked for; None keeps nothing.
    costs
        As for `Acquisition.select`, for all rows of the pool.
    first
        Indices of the rows that are labelled first; None draws `start` of them.
    progress
        Called with each row of the table.
    """
    rows, tested = check_x(pool), as_table(test)
    ask = oracle if callable(oracle) else _known(oracle, len(rows))
    first = _first(first, start, len(rows), key)
    if not len(first) <= most <= len(rows):
        raise InputError(f"most from {len(first)} to the {len(rows)} rows of the pool", f"{most}", "Change most=.")
    prices = as_costs(costs, len(rows))
    run = fingerprint(model, method, acquisition, rows, tested, first, batch, key, prices)
    with contextlib.nullcontext() if folder is None else files.locked(Path(folder)):
        notes = Notes(None if folder is None else Path(folder) / FILE, run)
        if not notes.chosen:
            notes.extend(first, _asked(ask, first, rows, model))
        while True:
            chosen, labels = np.array(notes.chosen), np.array(notes.labels)
            key_fit, key_select = jax.random.split(jax.random.fold_in(key, len(chosen)))
            known = Data(rows[chosen], labels).padded(capacity=room_for(len(chosen), most))
            posterior = method.fit(model, known, key=key_fit, progress=False)
            if not notes.rows or notes.rows[-1]["labels"] < len(chosen):
                notes.score({"labels": len(chosen), **_scores(posterior, tested)})
            if progress is not None:
                progress(notes.rows[-1])
            if len(chosen) >= most:
                return Learning(notes.rows, chosen, labels, posterior)
            left = np.setdiff1d(np.arange(len(rows)), chosen)
            num = min(batch, most - len(chosen))
            picked = acquisition.select(
                posterior, rows[left], num, key=key_select, costs=prices[left], known=rows[chosen]
            )
            more = left[picked]
            notes.extend(more, _asked(ask, more, rows, model))


def _first(first: Any, start: int, num: int, key: Key) -> np.ndarray:
    """Indices of the rows that are labelled first."""
    if first is None:
        return np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), num))[:start]
    indices = as_floats(first, "first")
    whole = indices.ndim == 1 and indices.size > 0 and bool((indices == np.round(indices)).all())
    if not whole or not 0 <= indices.min() <= indices.max() < num or len(np.unique(indices)) < len(indices):
        raise InputError(f"first as different indices from 0 to {num - 1}", shown(first), "Give rows of the pool.")
    return indices.astype(int)


def _known(labels: Any, num: int) -> Callable[[np.ndarray], np.ndarray]:
    floats = as_floats(labels, "oracle")
    values = np.asarray(labels) if isinstance(labels, np.ndarray | jax.Array) else floats
    if values.ndim == 0 or len(values) != num:
        raise InputError(f"a label for each of the {num} rows of the pool, or a function", shown(labels), "Match them.")
    return lambda indices: values[indices]


def _asked(ask: Callable[[np.ndarray], Any], indices: np.ndarray, rows: np.ndarray, model: Model) -> np.ndarray:
    """The oracle's labels; InputError unless there is one for each row that the likelihood takes.

    What the oracle raises itself comes through.
    """
    labels = np.asarray(ask(indices))
    try:
        model.likelihood.check(Data(rows[indices], labels).y)
    except InputError as error:
        expected, got, _ = error.args
        do = "Labels given before are kept: mend the oracle, and run it again."
        raise InputError(f"from the oracle {expected}", got, do) from error
    return labels


def _scores(posterior: Posterior, tested: Data) -> dict[str, float]:
    predictive: Any = posterior.predict(tested.x)
    nll = -metrics.log_score(predictive, tested.y)
    if probs(predictive) is None:
        return {"RMSE": metrics.rmse(predictive, tested.y), "NLL": nll}
    return {"accuracy": metrics.accuracy(predictive, tested.y), "NLL": nll}
