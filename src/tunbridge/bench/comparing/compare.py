"""Compare several methods on one model and one train/test split, scored in the units of the data."""

import dataclasses
import functools
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tunbridge.bench.baselines import BASELINES
from tunbridge.bench.comparing.cost import NOTHING, cost
from tunbridge.bench.comparing.recommend import Recommendation, recommend
from tunbridge.bench.comparing.scores import scores as scores_of
from tunbridge.bench.comparing.verdict import Guess, verdict
from tunbridge.core import tables
from tunbridge.core.data import Data
from tunbridge.core.declared import checked
from tunbridge.core.errors import CheckpointError, InputError
from tunbridge.core.loaders import as_pair
from tunbridge.core.names import METHODS
from tunbridge.core.provenance import Cut
from tunbridge.core.types import Key, Predictive
from tunbridge.inference.base import Method
from tunbridge.inference.standardised import Standardised, fit_standardised
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.likelihoods.multitask import MultiTask
from tunbridge.model.model import Model

COMPARED = ("map", "ensemble", "mcdropout", "swag", "laplace")
"""The default methods of a comparison: those whose predictions are useful even when training is stopped early.

Samplers must be asked for by name. So must variational methods: stopped early, they are still close to their wide
starting distribution.
"""


@dataclasses.dataclass(frozen=True)
class Comparison(tables.Table):
    """The result of `compare`: a row of scores per method, with its posterior and its predictive at the test inputs.

    A method that failed has a row of NaNs, and neither a posterior nor a predictive.
    """

    caption = "comparison"

    rows: list[dict[str, Any]]
    costs: list[dict[str, Any]]
    """Cost of prediction: networks averaged, milliseconds per row, and megabytes of the saved posterior."""
    posteriors: dict[str, Standardised]
    predictives: dict[str, Predictive]
    truth: np.ndarray
    """The test targets, as the likelihood scores them."""
    failures: dict[str, str] = dataclasses.field(default_factory=dict)
    """The reason, for each method that failed and each baseline that does not accept such data."""
    guess: Guess | None = None
    """The prediction from the training targets alone, without a model; None for several tasks."""

    @functools.cached_property
    def recommendation(self) -> Recommendation:
        """Which method to use on data like these, and why."""
        return recommend(self.rows, self.predictives, self.truth, BASELINES, self.cuts)

    @property
    def cuts(self) -> dict[str, Cut]:
        """Fits that were stopped before their last step, by method, and where; these methods are never recommended."""
        return {name: posterior.cut for name, posterior in self.posteriors.items() if posterior.cut is not None}

    @property
    def sentences(self) -> tuple[str, ...]:
        """The recommendation, which fits were cut short, and which failed."""
        cut = (f"{name}: {cut}." for name, cut in self.cuts.items())
        failed = (f"{name} is not compared: {sentence}" for name, sentence in self.failures.items())
        return (*self.recommendation.sentences, *cut, *failed)

    def add(
        self,
        name: str,
        figures: Mapping[str, float],
        seconds: float,
        costs: Mapping[str, float] = NOTHING,
        posterior: Standardised | None = None,
        predictive: Predictive | None = None,
    ) -> None:
        """Add a row; without a posterior if the method failed."""
        self.rows.append({"method": name, **figures, "seconds": seconds})
        self.costs.append({"method": name, **costs})
        if posterior is not None and predictive is not None:
            self.posteriors[name], self.predictives[name] = posterior, predictive

    @property
    def best(self) -> str:
        """The method with the lowest NLL on the test rows, among those that ran to completion if any did."""
        whole = self.predictives.keys() - self.cuts.keys() or self.predictives.keys()
        rows = [row for row in self.rows if row["method"] in whole]
        scores = [row["NLL"] if np.isfinite(row["NLL"]) else np.inf for row in rows]
        return rows[int(np.argmin(scores))]["method"]

    def verdict(self, name: str | None = None, targets: Sequence[str] = (), classes: Sequence[str] = ()) -> str:
        """A summary of one method: its error, what guessing would give, and its calibration; "" for several tasks.

        Parameters
        ----------
        name
            The method; None takes the recommended one, or the best if none is recommended.
        targets, classes
            Names of the targets, and of the classes.
        """
        name = name or self.recommendation.method or self.best
        if self.guess is None:
            return ""
        return verdict(name, self.predictives[name], self.truth, self.guess, targets, classes)

    def predict(self, name: str, x: Any) -> Predictive:
        """Predictive of one method at new inputs, in the units of the data."""
        if name not in self.posteriors:
            raise InputError(f"a method of {', '.join(self.posteriors)}", repr(name), "Choose one of these names.")
        return self.posteriors[name].predict(x)


@checked
def compare(
    model: Model,
    train: Any,
    test: Any,
    methods: Sequence[str | Method] | Mapping[str, Method] | None = None,
    *,
    baselines: bool = True,
    strict: bool = False,
    key: Key | None = None,
    max_seconds: float | None = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = True,
) -> Comparison:
    """Fit several methods to the same training rows and score them on the same test rows.

    x, and y if it is real-valued, are standardised with the mean and standard deviation of the training rows; scores
    are in the units of the data. Known noise is in these units too; a prior on the noise refers to y / sd(y).

    Parameters
    ----------
    model, train, test
        The model, the training rows and the test rows: `Data`, or pairs (x, y) of arrays or tensors, which keep their
        precision until they are standardised. All rows must be in memory: a loader is refused.
    methods
        Names in `METHODS` or `bench.BASELINES`, methods, or a mapping of names to methods; None takes "map",
        "ensemble", "mcdropout", "swag" and "laplace".
    baselines
        Whether to add every method of `bench.BASELINES` that accepts such data.
    strict
        Whether to raise when a method fails. By default the failure becomes a row of NaNs; it is still raised if every
        requested method failed, or if a checkpoint belongs to another run.
    key
        None is ``jax.random.key(0)``, which gives the same table each time.
    max_seconds
        Time limit for the training of each method, compilation not counted. A method that hits it is marked in the
        table and not recommended.
    checkpoint
        A folder to save to and to resume from, with one subfolder per method.
    progress
        Whether to show progress bars.
    """
    key = jax.random.key(0) if key is None else key
    x, y, weight = as_rows(train)
    test_x, truth, scores = as_rows(test)[0], as_scored(model, train, test), scores_of(model.likelihood)
    asked = named(methods)
    comparison = Comparison([], [], {}, {}, truth, guess=_guess(model, Data(x, y, weight)))

    def judge(name: str, method: Method, refusable: bool) -> Exception | None:
        folder = None if checkpoint is None else Path(checkpoint) / name
        options = {"max_seconds": max_seconds, "checkpoint": folder, "progress": progress}
        began = time.perf_counter()
        try:
            posterior = fit_standardised(method, model, x, y, weight, key=key, **options)
            seconds = time.perf_counter() - began
            predictive = posterior.predict(test_x)
            figures = {label: score(predictive, truth) for label, score in scores.items()}
            comparison.add(name, figures, seconds, cost(posterior, test_x, truth), posterior, predictive)
        except Exception as error:
            refused = refusable and isinstance(error, InputError)
            if isinstance(error, CheckpointError) or (strict and not refused):
                raise
            comparison.failures[name] = (str(error).splitlines() or [type(error).__name__])[0]
            if not refused:
                comparison.add(name, dict.fromkeys(scores, np.nan), time.perf_counter() - began)
            return error
        return None

    errors = [judge(name, method, refusable=False) for name, method in asked.items()]
    if errors and errors[0] is not None and not comparison.posteriors:
        raise errors[0]
    for name in BASELINES if baselines else ():
        if name not in asked:
            judge(name, BASELINES[name](), refusable=True)
    _mark(comparison)
    return comparison


def _guess(model: Model, train: Data) -> Guess | None:
    bound, rows = model.bind(train)
    y, weight = np.asarray(rows.y), np.asarray(rows.weights, np.float64)
    if isinstance(bound.likelihood, OfClasses):
        return Guess.of_classes(y, weight, bound.likelihood.num_classes(rows.y))
    return None if isinstance(bound.likelihood, MultiTask) else Guess.of_numbers(y, weight)


def _mark(comparison: Comparison) -> None:
    """Add a column that says where fits were stopped, if any was cut short."""
    cuts = comparison.cuts
    for row in comparison.rows if cuts else ():
        cut = cuts.get(row["method"])
        row["stopped"] = "" if cut is None else f"at {cut.step:,} of {cut.steps:,}"


def as_rows(data: Data | tuple[Any, Any]) -> tuple[Any, Any, Any]:
    """Return x, y and weights as given; raise InputError unless they are rows in memory."""
    return (data.x, data.y, data.weight) if isinstance(data, Data) else (*as_pair(data), None)


def as_scored(model: Model, train: Data | tuple[Any, Any], test: Data | tuple[Any, Any]) -> np.ndarray:
    """Test targets in the form that the likelihood scores, real values at their original precision."""
    x, y, _ = as_rows(test)
    truth = np.asarray(model.bind(Data(*as_rows(train)))[0].likelihood.check(Data(x, y).y))
    return truth if isinstance(model.likelihood, OfClasses) else np.asarray(y, np.float64).reshape(truth.shape)


def named(methods: Sequence[str | Method] | Mapping[str, Method] | None) -> dict[str, Method]:
    """Methods by name; None gives those of `COMPARED`."""
    if isinstance(methods, Mapping):
        return dict(methods)
    by_name: dict[str, Method] = {}
    for method in COMPARED if methods is None else methods:
        name = method if isinstance(method, str) else type(method).__name__.lower()
        if name in by_name:
            raise InputError("methods of different names", f"{name} twice", "Pass a mapping of names to methods.")
        by_name[name] = method if isinstance(method, Method) else _made(name)
    return by_name


def _made(name: str) -> Method:
    return BASELINES[name]() if name in BASELINES else METHODS[name]()
