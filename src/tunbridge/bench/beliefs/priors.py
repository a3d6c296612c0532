"""The consequences of a prior: prior predictive checks, sensitivity to its scale, and ranking by evidence."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tunbridge.bench.beliefs.evidence import learn, score
from tunbridge.bench.comparing.compare import compare
from tunbridge.core import tables
from tunbridge.core.data import Data
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Prior
from tunbridge.inference.base import Method
from tunbridge.inference.mcmc.smc import TemperedSMC
from tunbridge.inference.point.ensemble import Ensemble
from tunbridge.inference.posteriors import Draws
from tunbridge.model.likelihoods.base import OfClasses, OfNumbers
from tunbridge.model.model import Model
from tunbridge.model.priors import Normal, fan_in

GRID = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Default grid of prior scales for `sensitivity`."""
_LEVELS = (0.05, 0.5, 0.95)
_SURE = 0.99
_METHOD = "one"


@dataclasses.dataclass(frozen=True)
class Beliefs(tables.Table):
    """Prior predictive summary of a model: quantiles over draws from its prior."""

    caption = "prior predictive"

    rows: list[dict[str, Any]]
    sentences: tuple[str, ...]


@checked
def prior_predictive(model: Model, data: Any, *, key: Key, num: Count = 1000) -> Beliefs:
    """Compare what a model predicts from its prior at the inputs of some data with the observed y.

    Parameters
    ----------
    model, data
        The model and the data, `Data` or a pair (x, y); y is used for comparison only. Standardise x and y first if the
        model is meant for standardised rows.
    key, num
        The key, and the number of draws from the prior.
    """
    bound, rows = model.bind(data)
    drawn = jax.jit(jax.vmap(lambda k: bound.sample_params(k, bound.example())))(jax.random.split(key, num))
    predictive = Draws(bound, key, drawn).predict(np.asarray(rows.x))
    if isinstance(bound.likelihood, OfClasses):
        return _of_classes(np.asarray(predictive.functions), np.asarray(rows.y))
    if not isinstance(bound.likelihood, OfNumbers):
        name = type(bound.likelihood).__name__
        raise InputError("a likelihood of numbers or of classes", name, "Ask one task at a time.")
    functions, y = np.asarray(predictive.functions), np.asarray(predictive.replicates(key))
    return _of_numbers(functions, y, np.asarray(rows.y))


def _of_numbers(functions: np.ndarray, drawn: np.ndarray, y: np.ndarray) -> Beliefs:
    """Summary for regression, from functions and y, (draws, points, outputs)."""
    inside = functions.std(axis=1).mean(axis=-1)
    total = drawn.std(axis=1).mean(axis=-1)
    seen = float(y.std(axis=0).mean())
    rows = [
        _quantiles("f(x) at an input", functions.ravel()),
        _quantiles("sd of f over the inputs", inside),
        _quantiles("sd of y over the inputs", total) | {"seen": seen},
        _quantiles("largest |y|", np.abs(drawn).max(axis=(1, 2))) | {"seen": float(np.abs(y).max())},
        _quantiles("share of y's variance due to f", np.minimum((inside / np.maximum(total, 1e-30)) ** 2, 1.0)),
    ]
    share = float(np.mean(total <= seen))
    sentences = [f"{share:.0%} of data sets drawn from the prior vary less than the observed one."]
    if share < 0.01 or share > 0.99:
        sentences.append("The prior hardly expects data like these: change its scale, or standardise x and y.")
    return Beliefs(rows, tuple(sentences))


def _of_classes(probs: np.ndarray, y: np.ndarray) -> Beliefs:
    """Summary for classification, from probabilities (draws, points, classes)."""
    top = probs.max(axis=-1)
    used = np.array([len(np.unique(labels)) for labels in probs.argmax(axis=-1)])
    rows = [
        _quantiles("largest probability at an input", top.ravel()),
        _quantiles("classes predicted somewhere", used) | {"seen": float(len(np.unique(y)))},
        _quantiles("share of inputs with one class above 0.99", (top > _SURE).mean(axis=1)),
    ]
    sure = float(np.mean((top > _SURE).mean(axis=1) > 0.5))
    sentences = [f"{sure:.0%} of networks drawn from the prior are sure of a class at more than half of the inputs."]
    if sure > 0.5:
        sentences.append("Such a prior is sure before it has seen anything: take a smaller scale.")
    return Beliefs(rows, tuple(sentences))


def _quantiles(name: str, values: np.ndarray) -> dict[str, Any]:
    low, middle, high = np.quantile(values, _LEVELS)
    return {"quantity": name, "5 %": float(low), "50 %": float(middle), "95 %": float(high), "seen": ""}


@dataclasses.dataclass(frozen=True)
class Sensitivity(tables.Table):
    """Test scores and uncertainties of a model by the scale of its prior."""

    caption = "sensitivity to the prior's scale"
    sentences = ()

    rows: list[dict[str, Any]]


@checked
def sensitivity(
    model: Model,
    train: Data | tuple[Any, Any],
    test: Data | tuple[Any, Any],
    *,
    make: Callable[[float], Prior] = lambda scale: Normal(fan_in(scale)),
    scales: Sequence[float] = GRID,
    method: Method | None = None,
    key: Key,
) -> Sensitivity:
    """Fit a model once per scale of its prior, and score each fit on the test rows as `compare` does.

    Parameters
    ----------
    model, train, test
        As for `compare`; the model's own prior is replaced.
    make
        Function from a scale to the prior.
    scales
        The grid of scales.
    method
        None is ``Ensemble()``; a sampler is more accurate, at a higher cost.
    key
        The key, the same for every scale.
    """
    rows = []
    for scale in scales:
        under = dataclasses.replace(model, prior=make(float(scale)))
        comparison = compare(
            under, train, test, {_METHOD: method or Ensemble()}, baselines=False, key=key, progress=False
        )
        predictive = comparison.predictives[_METHOD]
        spread = {
            "total": float(np.mean(np.asarray(predictive.total))),
            "epistemic": float(np.mean(np.asarray(predictive.epistemic))),
        }
        figures = {name: value for name, value in comparison.rows[0].items() if name not in ("method", "seconds")}
        rows.append({"scale": float(scale), **figures, **spread})
    return Sensitivity(rows)


@dataclasses.dataclass(frozen=True)
class Ranking(tables.Table):
    """Priors ranked by their evidence, with their test scores."""

    caption = "priors by evidence"
    sentences = ("Log evidence of standardised rows, by tempered sequential Monte Carlo.",)

    rows: list[dict[str, Any]]


@checked
def rank_priors(
    model: Model,
    priors: Mapping[str, Prior],
    train: Data | tuple[Any, Any],
    test: Data | tuple[Any, Any],
    *,
    method: TemperedSMC | None = None,
    key: Key,
) -> Ranking:
    """Rank priors by the evidence of the training rows; the table also has the test NLL and its standard error.

    Parameters
    ----------
    model, train, test
        As for `compare`; the model's own prior is replaced.
    priors
        Priors by name.
    method
        A method that estimates the evidence; None is ``TemperedSMC()``.
    key
        The key, the same for every prior.
    """
    rows = []
    for name, prior in priors.items():
        fit = learn(dataclasses.replace(model, prior=prior), train, method or TemperedSMC(), key=key)
        scores = score(fit.posterior, model, train, test)
        rows.append({"prior": name, "log evidence": fit.log_evidence, **scores})
    return Ranking(sorted(rows, key=lambda row: -row["log evidence"]))
