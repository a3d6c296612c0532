"""One table: several methods on one model and one split, in the units of the data."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from tunbridge import metrics
from tunbridge.core import tables
from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Predictive
from tunbridge.inference.base import Method
from tunbridge.inference.registry import METHODS
from tunbridge.inference.standardised import Standardised, fit_standardised
from tunbridge.model.likelihoods.base import OfNumbers
from tunbridge.model.model import Model

NUMBERS = {
    "RMSE": metrics.rmse,
    "NLL": lambda predictive, y: -metrics.log_score(predictive, y),
    "CRPS": metrics.crps,
    "90 % coverage": metrics.coverage,
    "interval score": metrics.interval_score,
}
CLASSES = {
    "accuracy": metrics.accuracy,
    "NLL": NUMBERS["NLL"],
    "Brier": metrics.brier,
    "ECE": metrics.ece,
}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What `compare` found: rows of figures, and each method's posterior and predictive at the test inputs."""

    rows: list[dict[str, Any]]
    posteriors: dict[str, Standardised]
    predictives: dict[str, Predictive]

    def predict(self, name: str, x: Any) -> Predictive:
        """The predictive of one method at other inputs, in the units of the data."""
        return self.posteriors[name].predict(x)

    def __rich__(self):
        """A table for rich."""
        return tables.to_rich(self.rows)

    def __str__(self) -> str:
        return tables.to_text(self.rows)

    def _repr_html_(self) -> str:
        return tables.to_html(self.rows, "comparison")


def compare(
    model: Model,
    train: Data,
    test: Data,
    methods: Sequence[str | Method] | Mapping[str, Method] | None = None,
    *,
    key: Key | None = None,
    progress: bool = True,
) -> Comparison:
    """Fit several methods to the same training rows and score them on the same test rows.

    x, and y where it is numbers, are standardised by the training rows; figures are in the data's own units. Known
    noise is in these units too; a prior on noise refers to y / sd(y).

    Parameters
    ----------
    model, train, test
        The model, and rows to learn from and to be judged on.
    methods
        Names of `METHODS`, methods, or a mapping of names to methods; None takes all of `METHODS`.
    key
        None is ``jax.random.key(0)``: the same table each time.
    progress
        Show bars.
    """
    key = jax.random.key(0) if key is None else key
    truth = model.bind(train)[0].likelihood.check(test.y)
    scores = NUMBERS if isinstance(model.likelihood, OfNumbers) else CLASSES
    rows, posteriors, predictives = [], {}, {}
    for name, method in _named(methods).items():
        began = time.perf_counter()
        posteriors[name] = fit_standardised(method, model, train.x, train.y, train.weight, key=key, progress=progress)
        seconds = time.perf_counter() - began
        predictives[name] = predictive = posteriors[name].predict(test.x)
        figures = {label: score(predictive, truth) for label, score in scores.items()}
        rows.append({"method": name, **figures, "seconds": seconds})
    return Comparison(rows, posteriors, predictives)


def _named(methods: Sequence[str | Method] | Mapping[str, Method] | None) -> dict[str, Method]:
    if isinstance(methods, Mapping):
        return dict(methods)
    named: dict[str, Method] = {}
    for method in METHODS if methods is None else methods:
        if not isinstance(method, str | Method):
            raise InputError("names or methods", repr(method)[:60], 'Write methods=["map", tb.Ensemble()].')
        name = method if isinstance(method, str) else type(method).__name__.lower()
        if name in named:
            raise InputError("methods of different names", f"{name} twice", "Pass a mapping of names to methods.")
        named[name] = METHODS[name]() if isinstance(method, str) else method
    return named
