"""The parts that baselines share: training rows, the fitted posterior, cross-validation folds, temperature scaling."""

import abc
import os
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from threadpoolctl import threadpool_limits

from tunbridge.bench.baselines.processes.predictive import ProcessPredictive
from tunbridge.core.data import Data, Stream, check_x
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Predictive
from tunbridge.inference.base import Method
from tunbridge.inference.posteriors import Posterior, Weightless
from tunbridge.inference.summary import Summary
from tunbridge.model.likelihoods import Categorical
from tunbridge.model.likelihoods.base import OfClasses, OfNumbers
from tunbridge.model.model import Model
from tunbridge.model.networks import MLP
from tunbridge.model.priors import Normal
from tunbridge.predict.push import push_outputs
from tunbridge.runtime import programs
from tunbridge.runtime.loop import Options

FOLDS = 5
_FEWEST = 10
_MOST_NUMBERS = 5_000_000
"""Largest size of x, times the number of classes: more takes minutes."""


class Rows(NamedTuple):
    """Training rows in the form that scikit-learn takes."""

    x: np.ndarray
    """Inputs, (points, features), float64."""
    y: np.ndarray
    """Real-valued targets (points, outputs), or class labels (points,)."""
    weight: np.ndarray
    """The weight of each row, (points,)."""
    classes: int
    """The number of classes; 0 for regression."""

    def take(self, chosen: np.ndarray) -> "Rows":
        """Return the chosen rows."""
        return Rows(self.x[chosen], self.y[chosen], self.weight[chosen], self.classes)


class Learnt(Protocol):
    """The fitted predictor of a baseline."""

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """Predictive distribution of y at x."""
        ...


class Fitted(Weightless):
    """A fitted baseline: it predicts like a posterior, but has no weights to sample.

    Parameters
    ----------
    model
        The model that it is compared with; its network is not used.
    learnt
        The fitted predictor.
    """

    learnt: Any

    @checked
    @programs.unforked
    def predict(self, x: Any, *, key: Key | None = None, num: Count | None = None) -> Predictive:
        """Predictive distribution of y at x; `num` is refused, since no weights are sampled."""
        if num is not None:
            raise InputError("no num= for a baseline", f"num={num}", "Leave it out.")
        rows = np.asarray(check_x(x))
        inputs = self.model.example().shape[1:]
        if rows.shape[1:] != inputs:
            raise InputError(f"features of shape {inputs}", f"{rows.shape[1:]}", "Pass the same features.")
        with threadpool_limits(1):
            return self.learnt.predict(rows, self.key if key is None else key)

    @property
    def refusal(self) -> InputError:
        """The error for everything that needs posterior weights."""
        return InputError("a posterior over weights", "a baseline, which has none", "Use only predict().")

    def summary(self) -> Summary:
        """Refuse: a baseline has no weights."""
        raise self.refusal

    def save(self, path: str | os.PathLike) -> None:
        """Refuse: refitting a baseline takes seconds."""
        raise InputError("a posterior of a network", "a baseline", "Fit it again, or use scikit-learn's own.")


class Baseline(Method):
    """A method without a network, for regression with normal noise (whatever the likelihood says) or classification.

    It ignores `max_seconds` and always runs to completion: data on which that would take minutes is refused.
    """

    @abc.abstractmethod
    def learn(self, rows: Rows, key: Key) -> tuple[Learnt, str]:
        """Fit the rows; return the fitted predictor, and a sentence about the fit."""

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """Fit the baseline `size` times, each with its own key."""
        rows = _rows(model, check_kind(model, data))
        fits: list[Posterior] = []
        for each in jax.random.split(key, size):
            with threadpool_limits(1):  # on a busy machine, threads that wait for each other are fifty times slower
                learnt, note = self.learn(rows, each)
            fits.append(Fitted(model, each, learnt, notes=(note,)))
        return fits


def check_kind(model: Model, data: Data | Stream) -> Data:
    """Return the data; raise InputError unless it is regression or classification data with all rows in memory."""
    if not isinstance(model.likelihood, OfNumbers | OfClasses):
        got = type(model.likelihood).__name__
        raise InputError("a likelihood of numbers or of classes for a baseline", got, "Compare without baselines.")
    if not isinstance(data, Data):
        raise InputError("rows in memory for a baseline", "a stream", "Compare without baselines.")
    if data.num < _FEWEST:
        raise InputError(f"at least {_FEWEST} rows for a baseline", f"{data.num}", "Compare without baselines.")
    return data


def _rows(model: Model, data: Data) -> Rows:
    x, likelihood = np.asarray(data.x, np.float64), model.likelihood
    if x.ndim != 2:
        raise InputError("x of shape (points, features) for this baseline", f"shape {x.shape}", "Leave it out.")
    classes = likelihood.num_classes(data.y) if isinstance(likelihood, OfClasses) else 0
    if x.size * max(classes, 1) > _MOST_NUMBERS:
        got = f"{x.size * max(classes, 1):,}"
        expected = f"at most {_MOST_NUMBERS:,} numbers in x, times the classes, for this baseline"
        raise InputError(expected, got, "Compare on fewer rows, or leave it out.")
    y, weight = np.asarray(data.y), np.asarray(data.weights, np.float64)
    if classes and np.sum(np.bincount(y, weights=weight > 0) >= 2) < 2:
        raise InputError("two classes of at least 2 rows each", "fewer", "Gather rows of other classes.")
    rows = Rows(x, y if classes else y.astype(np.float64), weight, classes)
    return rows.take(weight > 0)


def folds(key: Key, rows: Rows) -> np.ndarray:
    """Assign each row to a random fold from 0 to 4, stratified by class."""
    order = np.asarray(jax.random.permutation(key, len(rows.x)))
    if rows.classes:
        order = order[np.argsort(rows.y[order], kind="stable")]
    fold = np.empty(len(order), int)
    fold[order] = np.arange(len(order)) % FOLDS
    return fold


def all_classes(probs: np.ndarray, seen: np.ndarray, num: int, classes: int) -> np.ndarray:
    """Log probabilities of all classes, given `probs` of those `seen` in `num` rows; others get 1 / (num + classes)."""
    rare = 1.0 / (num + classes)
    all_probs = np.full((*probs.shape[:-1], classes), rare)
    all_probs[..., seen] = np.maximum(probs, np.finfo(np.float32).tiny) * (1.0 - (classes - len(seen)) * rare)
    return np.log(all_probs)


def nll(log_probs: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """Weighted mean of the negative log probability of the labels y."""
    return -float(np.average(log_probs[np.arange(len(y)), y], weights=weight))


def best_temperature(log_probs: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    r"""The temperature :math:`\tau` at which softmax(log p / :math:`\tau`) gives the labels the highest likelihood."""

    def loss(log_tau: float) -> float:
        return nll(log_softmax(log_probs / np.exp(log_tau), axis=1), y, weight)

    return float(np.exp(minimize_scalar(loss, bounds=(np.log(0.05), np.log(20.0)), method="bounded").x))


def of_classes(log_probs: np.ndarray, x: np.ndarray) -> Predictive:
    """Predictive over classes with log probabilities `log_probs` at x, (points, classes)."""
    model = Model(MLP(()), Normal(1.0), Categorical(log_probs.shape[1]))
    return push_outputs(model, jnp.asarray(log_probs, jax.dtypes.canonicalize_dtype(float))[None], (), x)


def around(mean: np.ndarray, noise: np.ndarray, key: Key) -> Predictive:
    """Predictive of one function `mean` with normal noise of variance `noise`."""

    def draw(_: Key, num: int) -> np.ndarray:
        return np.broadcast_to(mean[None], (num, *mean.shape))

    return ProcessPredictive(mean, np.zeros_like(mean), noise, draw, key)


def seed(key: Key) -> int:
    """An integer seed for scikit-learn, drawn from the key."""
    return int(jax.random.randint(key, (), 0, 2**31 - 1))
