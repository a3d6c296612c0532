"""The scikit-learn classifier."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from tunbridge.core.declared import shown
from tunbridge.core.errors import InputError
from tunbridge.core.types import Likelihood, Network, Prior
from tunbridge.estimators.base import BayesianEstimator, as_likelihood, weights
from tunbridge.inference.base import Method
from tunbridge.model import defaults
from tunbridge.model.likelihoods.base import OfClasses


class BayesianClassifier(ClassifierMixin, BayesianEstimator):
    """Classification with a Bayesian neural network, for scikit-learn.

    X is standardised with the mean and scale of the rows given to `fit`. Equal rows are merged and rows of weight 0
    dropped, so a row of weight 2 is exactly equivalent to two copies of it, and the order of rows does not matter.

    Parameters
    ----------
    method
        A name in `tunbridge.METHODS`, or a method.
    network
        A network, or the units of its hidden layers; None is ``(50,)``, or above 5,000 rows ``(50, 50)``.
    prior
        Prior over the weights, or a name that ``tunbridge fit --prior`` takes, such as "horseshoe"; None is
        ``Normal(fan_in(dist.LogNormal(0.0, 0.5)))``, with an unknown scale around 1.
    likelihood
        A likelihood, or a name that ``tunbridge fit --likelihood`` takes. None is ``Bernoulli()`` for two classes and
        ``Categorical()`` for more. ``Ordinal()`` takes the labels as ordered, in the order of `classes_`.
    class_weight
        None, "balanced" (all classes have the same total weight, and the weights sum to the number of rows), or a dict
        from label to weight. Class weights multiply sample weights.
    checkpoint, max_seconds, progress
        As for `tunbridge.inference.base.Method.fit`.
    random_state
        Seed or random state; an int gives the same fit each time.

    Attributes
    ----------
    posterior_
        The fitted posterior, a `tunbridge.Standardised`.
    classes_
        The labels, in the order of the columns of `predict_proba`.
    n_features_in_, feature_names_in_
        Number and names of the columns of X.

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
        method: str | Method = "auto",
        network: Network | Sequence[int] | None = None,
        prior: str | Prior | None = None,
        likelihood: str | Likelihood | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        checkpoint: str | os.PathLike | None = None,
        max_seconds: float | None = None,
        progress: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ):
        super().__init__(method, network, prior, likelihood, checkpoint, max_seconds, progress, random_state)
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to inputs X (points, features) and labels y (points,); a weight counts copies of its row."""
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        y, weight = column_or_1d(y, warn=True), weights(sample_weight, x)
        if weight is not None:
            x, y, weight = x[weight > 0], y[weight > 0], weight[weight > 0]
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("at least 2 classes in y", f"1 class, {self.classes_[0]!s}", "Check how rows were chosen.")
        if self.class_weight is not None:
            try:
                balance = compute_sample_weight(self.class_weight, y)
            except (ValueError, TypeError, LookupError) as error:
                expected = 'class_weight= as "balanced", or a mapping from every label to its weight'
                raise InputError(expected, shown(self.class_weight), "Leave it out to weigh all rows alike.") from error
            weight = balance if weight is None else balance * weight
        self._learn(x, numbers, weight, self._family())
        return self

    def _family(self) -> Likelihood:
        """Return the likelihood: the one given, or the default for the number of classes."""
        given = as_likelihood(self.likelihood, defaults.of_classes(len(self.classes_)))
        if not isinstance(given, OfClasses):
            raise InputError("a likelihood of classes", f"{given!r}"[:60], "Use BayesianRegressor for numbers.")
        return given

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label at each point."""
        probs = self.predict_proba(X)
        return self.classes_[np.argmax(probs, axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, (points, classes)."""
        probs = np.asarray(self.predictive(X).probs, np.float64)
        return probs / probs.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the log probability of each class, (points, classes)."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))
