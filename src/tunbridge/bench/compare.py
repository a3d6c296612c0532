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
from tunbridge.datasets.scaling import Scaling
from tunbridge.inference.base import Method
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.registry import METHODS
from tunbridge.model.likelihoods.base import OfNumbers
from tunbridge.model.model import Model
from tunbridge.predict.scaled import ScaledPredictive

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
    posteriors: dict[str, Posterior]
    predictives: dict[str, Predictive]
    scaling: Scaling

    def predict(self, name: str, x: Any) -> Predictive:
        """The predictive of one method at other inputs, in the units of the data."""
        return _in_units(self.posteriors[name], self.scaling, x)

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
    numbers = isinstance(model.likelihood, OfNumbers)
    scaling = Scaling.of(train, numbers)
    if scaling.y_scale is not None:
        model = dataclasses.replace(model, likelihood=model.likelihood.in_units(scaling.y_scale))
    model, standard = model.bind(scaling.apply(train))
    truth = model.likelihood.check(test.y)
    scores = NUMBERS if numbers else CLASSES
    rows, posteriors, predictives = [], {}, {}
    for name, method in _named(methods).items():
        began = time.perf_counter()
        posteriors[name] = method.fit(model, standard, key=key, progress=progress)
        seconds = time.perf_counter() - began
        predictives[name] = predictive = _in_units(posteriors[name], scaling, test.x)
        figures = {label: score(predictive, truth) for label, score in scores.items()}
        rows.append({"method": name, **figures, "seconds": seconds})
    return Comparison(rows, posteriors, predictives, scaling)


def _in_units(posterior: Posterior, scaling: Scaling, x: Any) -> Predictive:
    predictive = posterior.predict(scaling.inputs(x))
    if scaling.y_shift is None or scaling.y_scale is None:
        return predictive
    return ScaledPredictive(predictive, scaling.y_shift, scaling.y_scale)


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
