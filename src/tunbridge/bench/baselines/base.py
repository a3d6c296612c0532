"""What baselines share: the rows they take, the posterior that they are asked through, folds, and a temperature."""

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
from tunbridge.runtime.loop import Options

FOLDS = 5
_FEWEST = 10
_MOST_NUMBERS = 5_000_000
"""How many numbers x may hold, times the classes: more takes minutes."""


class Rows(NamedTuple):
    """Training rows as scikit-learn takes them."""

    x: np.ndarray
    """(points, features) of float64."""
    y: np.ndarray
    """Numbers (points, outputs), or labels (points,)."""
    weight: np.ndarray
    """How often each counts, (points,)."""
    classes: int
    """How many there are; 0 for numbers."""

    def take(self, chosen: np.ndarray) -> "Rows":
        """Some of them."""
        return Rows(self.x[chosen], self.y[chosen], self.weight[chosen], self.classes)


class Learnt(Protocol):
    """What a baseline keeps of its rows."""

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """The distribution of y at x."""
        ...


class Fitted(Weightless):
    """A baseline given data: it predicts as a posterior does, and has no weights to draw.

    Parameters
    ----------
    model
        The model that it stands beside; its network is not used.
    learnt
        What it keeps.
    """

    learnt: Any

    @checked
    def predict(self, x: Any, *, key: Key | None = None, num: Count | None = None) -> Predictive:
        """The distribution of y at x; `num` is refused, for no weights are drawn."""
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
        """It has none."""
        return InputError("a posterior over weights", "a baseline, which has none", "Ask it to predict.")

    def summary(self) -> Summary:
        """Refused: there are no weights."""
        raise self.refusal

    def save(self, path: str | os.PathLike) -> None:
        """Refused: a baseline is fitted again in seconds."""
        raise InputError("a posterior of a network", "a baseline", "Fit it again, or use scikit-learn's own.")


class Baseline(Method):
    """A method without a network: it takes the likelihood for numbers with normal noise, or for classes.

    It runs to its end, whatever `max_seconds` says: data that would take it minutes is refused.
    """

    @abc.abstractmethod
    def learn(self, rows: Rows, key: Key) -> tuple[Learnt, str]:
        """What is kept of the rows, and a sentence about it."""

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """The baseline `size` times, each with a key of its own."""
        rows = _rows(model, check_kind(model, data))
        found: list[Posterior] = []
        for each in jax.random.split(key, size):
            with threadpool_limits(1):  # on a busy machine threads that wait for one another take fifty times as long
                learnt, note = self.learn(rows, each)
            found.append(Fitted(model, each, learnt, notes=(note,)))
        return found


def check_kind(model: Model, data: Data | Stream) -> Data:
    """The data; InputError unless it is of numbers or classes, and all rows at hand."""
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
    """A fold from 0 to 4 for each row, at random, every class spread evenly over them."""
    order = np.asarray(jax.random.permutation(key, len(rows.x)))
    if rows.classes:
        order = order[np.argsort(rows.y[order], kind="stable")]
    found = np.empty(len(order), int)
    found[order] = np.arange(len(order)) % FOLDS
    return found


def all_classes(probs: np.ndarray, seen: np.ndarray, num: int, classes: int) -> np.ndarray:
    """Log probabilities of all classes, given those of the `seen` among `num` rows; others get 1 / (num + classes)."""
    rare = 1.0 / (num + classes)
    found = np.full((*probs.shape[:-1], classes), rare)
    found[..., seen] = np.maximum(probs, np.finfo(np.float32).tiny) * (1.0 - (classes - len(seen)) * rare)
    return np.log(found)


def nll(log_probs: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """The mean negative log probability of the labels."""
    return -float(np.average(log_probs[np.arange(len(y)), y], weights=weight))


def best_temperature(log_probs: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    r"""The :math:`\tau` of softmax(log p / :math:`\tau`) under which the labels are most probable."""

    def loss(log_tau: float) -> float:
        return nll(log_softmax(log_probs / np.exp(log_tau), axis=1), y, weight)

    return float(np.exp(minimize_scalar(loss, bounds=(np.log(0.05), np.log(20.0)), method="bounded").x))


def of_classes(log_probs: np.ndarray, x: np.ndarray) -> Predictive:
    """The predictive of classes with these log probabilities at x, (points, classes)."""
    model = Model(MLP(()), Normal(1.0), Categorical(log_probs.shape[1]))
    return push_outputs(model, jnp.asarray(log_probs, jax.dtypes.canonicalize_dtype(float))[None], (), x)


def around(mean: np.ndarray, noise: np.ndarray, key: Key) -> Predictive:
    """The predictive of numbers with normal noise of this variance around one function."""

    def draw(_: Key, num: int) -> np.ndarray:
        return np.broadcast_to(mean[None], (num, *mean.shape))

    return ProcessPredictive(mean, np.zeros_like(mean), noise, draw, key)


def seed(key: Key) -> int:
    """A seed for scikit-learn."""
    return int(jax.random.randint(key, (), 0, 2**31 - 1))
