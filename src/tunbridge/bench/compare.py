"""One table: several methods on one model and one split, in the units of the data."""

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tunbridge.bench.scores import scores as scores_of
from tunbridge.core import tables
from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Predictive
from tunbridge.inference.base import Method
from tunbridge.inference.registry import COMPARED, METHODS
from tunbridge.inference.standardised import Standardised, fit_standardised
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model


@dataclasses.dataclass(frozen=True)
class Comparison(tables.Table):
    """What `compare` found: rows of figures, and each method's posterior and predictive at the test inputs."""

    caption = "comparison"
    sentences = ()

    rows: list[dict[str, Any]]
    posteriors: dict[str, Standardised]
    predictives: dict[str, Predictive]
    truth: np.ndarray
    """The test targets, as the likelihood scores them."""

    @property
    def best(self) -> str:
        """The method of the lowest NLL on the test rows."""
        scores = [row["NLL"] if np.isfinite(row["NLL"]) else np.inf for row in self.rows]
        return self.rows[int(np.argmin(scores))]["method"]

    def predict(self, name: str, x: Any) -> Predictive:
        """The predictive of one method at other inputs, in the units of the data."""
        return self.posteriors[name].predict(x)


def compare(
    model: Model,
    train: Data | tuple[Any, Any],
    test: Data | tuple[Any, Any],
    methods: Sequence[str | Method] | Mapping[str, Method] | None = None,
    *,
    key: Key | None = None,
    max_seconds: float | None = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = True,
) -> Comparison:
    """Fit several methods to the same training rows and score them on the same test rows.

    x, and y where it is real numbers, are standardised by the training rows; figures are in the data's own units. Known
    noise is in these units too; a prior on noise refers to y / sd(y).

    Parameters
    ----------
    model, train, test
        The model, and rows to learn from and to be judged on: `Data`, or pairs (x, y) of arrays, whose digits are
        kept until they are standardised.
    methods
        Names of `METHODS`, methods, or a mapping of names to methods; None takes those that are not samplers.
    key
        None is ``jax.random.key(0)``: the same table each time.
    max_seconds
        The most that each method may train.
    checkpoint
        A folder to save to and to resume from, with one folder a method in it.
    progress
        Show bars.
    """
    key = jax.random.key(0) if key is None else key
    x, y, weight = as_rows(train)
    test_x, truth, scores = as_rows(test)[0], as_scored(model, train, test), scores_of(model.likelihood)
    rows, posteriors, predictives = [], {}, {}
    for name, method in _named(methods).items():
        folder = None if checkpoint is None else Path(checkpoint) / name
        options = {"max_seconds": max_seconds, "checkpoint": folder, "progress": progress}
        began = time.perf_counter()
        posteriors[name] = fit_standardised(method, model, x, y, weight, key=key, **options)
        seconds = time.perf_counter() - began
        predictives[name] = predictive = posteriors[name].predict(test_x)
        figures = {label: score(predictive, truth) for label, score in scores.items()}
        rows.append({"method": name, **figures, "seconds": seconds})
    return Comparison(rows, posteriors, predictives, truth)


def as_rows(data: Data | tuple[Any, Any]) -> tuple[Any, Any, Any]:
    """x, y and weight, as given."""
    return (data.x, data.y, data.weight) if isinstance(data, Data) else (*data, None)


def as_scored(model: Model, train: Data | tuple[Any, Any], test: Data | tuple[Any, Any]) -> np.ndarray:
    """The test targets as the likelihood scores them, numbers with the digits they came with."""
    x, y, _ = as_rows(test)
    truth = np.asarray(model.bind(Data(*as_rows(train)))[0].likelihood.check(Data(x, y).y))
    return truth if isinstance(model.likelihood, OfClasses) else np.asarray(y, np.float64).reshape(truth.shape)


def _named(methods: Sequence[str | Method] | Mapping[str, Method] | None) -> dict[str, Method]:
    if isinstance(methods, Mapping):
        return dict(methods)
    named: dict[str, Method] = {}
    for method in COMPARED if methods is None else methods:
        if not isinstance(method, str | Method):
            raise InputError("names or methods", repr(method)[:60], 'Write methods=["map", tb.Ensemble()].')
        name = method if isinstance(method, str) else type(method).__name__.lower()
        if name in named:
            raise InputError("methods of different names", f"{name} twice", "Pass a mapping of names to methods.")
        named[name] = METHODS[name]() if isinstance(method, str) else method
    return named
