"""Classes from tables."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from tunbridge.core.errors import InputError
from tunbridge.core.types import Likelihood, Network, Prior
from tunbridge.estimators.base import BayesianEstimator, weights
from tunbridge.inference.base import Method
from tunbridge.model import defaults
from tunbridge.model.likelihoods.base import OfClasses


class BayesianClassifier(ClassifierMixin, BayesianEstimator):
    """Classification with a Bayesian neural network, for scikit-learn.

    X is standardised by the rows of `fit`. Equal rows are merged and rows of weight 0 left out, so that a weight is
    exactly so many copies and the order of rows does not matter.

    Parameters
    ----------
    method
        A name of `tunbridge.METHODS`, or a method.
    network
        A network, or the units of its hidden layers: ``(50, 50)`` is ``MLP((50, 50))``, and so is None.
    prior
        Of the weights; None is ``Normal(fan_in(dist.LogNormal(0.0, 0.5)))``, a scale around 1 that is unknown.
    likelihood
        None is ``Bernoulli()`` for two classes and ``Categorical()`` for more. ``Ordinal()`` takes the labels to be in
        the order of `classes_`.
    class_weight
        None, "balanced" (each class counts as much as another, n rows in all), or a dict of label to weight; they
        multiply sample weights.
    checkpoint, max_seconds, progress
        As for `tunbridge.inference.base.Method.fit`.
    random_state
        An int gives the same fit each time.

    Attributes
    ----------
    posterior_
        What was learnt, a `tunbridge.Standardised`.
    classes_
        The labels, in the order of the columns of `predict_proba`.
    n_features_in_, feature_names_in_
        What X looked like.

    Examples
    --------
    >>> import numpy as np, tunbridge as tb
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> quick = tb.MAP(train=tb.Train(300))
    >>> fitted = tb.BayesianClassifier(quick, random_state=0).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    >>> [str(label) for label in fitted.predict([[-0.5], [0.5]])]
    ['no', 'yes']
    """

    def __init__(
        self,
        method: str | Method = "laplace",
        network: Network | Sequence[int] | None = None,
        prior: Prior | None = None,
        likelihood: Likelihood | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        checkpoint: str | os.PathLike | None = None,
        max_seconds: float | None = None,
        progress: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ):
        super().__init__(method, network, prior, likelihood, checkpoint, max_seconds, progress, random_state)
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows X (points, features) and labels y (points,); a weight counts copies."""
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        y, weight = column_or_1d(y, warn=True), weights(sample_weight, x)
        if weight is not None:
            x, y, weight = x[weight > 0], y[weight > 0], weight[weight > 0]
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("at least 2 classes in y", f"1 class, {self.classes_[0]!s}", "Check how rows were chosen.")
        if self.class_weight is not None:
            balance = compute_sample_weight(self.class_weight, y)
            weight = balance if weight is None else balance * weight
        self._learn(x, numbers, weight, self._family())
        return self

    def _family(self) -> Likelihood:
        """The likelihood, which knows how many classes there are."""
        num, given = len(self.classes_), self.likelihood
        if given is None:
            return defaults.of_classes(num)
        if not isinstance(given, OfClasses):
            raise InputError("a likelihood of classes", f"{given!r}"[:60], "Use BayesianRegressor for numbers.")
        return given

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label at each point."""
        probs = self.predict_proba(X)
        return self.classes_[np.argmax(probs, axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, (points, classes)."""
        probs = np.asarray(self.predictive(X).probs, np.float64)
        return probs / probs.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Its logarithm."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))
