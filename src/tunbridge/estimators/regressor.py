"""The scikit-learn regressor."""

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from tunbridge.core.errors import InputError
from tunbridge.estimators.base import BayesianEstimator, as_likelihood, weights
from tunbridge.model.likelihoods.base import OfCounts, OfNumbers


class BayesianRegressor(RegressorMixin, BayesianEstimator):
    """Regression with a Bayesian neural network, for scikit-learn.

    X, and y unless it holds counts, are standardised with the mean and scale of the rows given to `fit`; all results
    are in the original units. Equal rows are merged and rows of weight 0 dropped, so a row of weight 2 is exactly
    equivalent to two copies of it, and the order of rows does not matter.

    Parameters
    ----------
    method
        A name in `tunbridge.METHODS`, or a method.
    network
        A network, or the units of its hidden layers; None is ``(50,)``, or above 5,000 rows ``(50, 50)``. Methods for
        shallow networks, such as "gibbsmetropolis", have a network, prior and likelihood of their own instead of None.
    prior
        Prior over the weights, or a name that ``tunbridge fit --prior`` takes, such as "horseshoe"; None is
        ``Normal(fan_in(dist.LogNormal(0.0, 0.5)))``, with an unknown scale around 1.
    likelihood
        A likelihood, or a name that ``tunbridge fit --likelihood`` takes, such as "studentt"; None is
        ``Gaussian(dist.Gamma(0.5, 1.0))``, unknown noise with a prior in units of sd(y). A known noise scale is
        given in the units of y. Use ``Heteroscedastic()`` for noise that varies with x, ``StudentT`` or ``Laplace``
        for outliers, and ``Poisson()`` or ``NegativeBinomial`` for counts, which are not standardised.
    checkpoint, max_seconds, progress
        As for `tunbridge.inference.base.Method.fit`.
    random_state
        Seed or random state; an int gives the same fit each time.

    Attributes
    ----------
    posterior_
        The fitted posterior, a `tunbridge.Standardised`.
    n_features_in_, feature_names_in_, n_outputs_
        Number and names of the columns of X, and number of columns of y.

    Examples
    --------
    >>> import numpy as np, tunbridge as tb
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> quick, known = tb.MAP(train=tb.Train(300)), tb.likelihoods.Gaussian(0.1)
    >>> fitted = tb.BayesianRegressor(quick, likelihood=known, random_state=0).fit(X, 3 * X[:, 0])
    >>> mean, std = fitted.predict(X, return_std=True)
    >>> mean.shape, bool(np.abs(mean - 3 * X[:, 0]).max() < 0.5)
    ((30,), True)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to X (points, features) and y (points,) or (points, outputs); a weight counts copies of its row."""
        x, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        likelihood = as_likelihood(self.likelihood, self._parts().of_numbers())
        if not isinstance(likelihood, OfNumbers | OfCounts):
            raise InputError(
                "a likelihood of numbers or counts",
                f"{likelihood!r}"[:60],
                "Use BayesianClassifier for classes, and tb.Model with tb.compare for several tasks.",
            )
        self._flat = y.ndim == 1
        self.n_outputs_ = 1 if self._flat else y.shape[1]
        self._learn(x, y, weights(sample_weight, x), likelihood)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of y and, with `return_std`, its standard deviation, noise included, in the shape of y."""
        predictive = self.predictive(X)
        mean = self._shaped(predictive.mean)
        return (mean, self._shaped(predictive.std)) if return_std else mean

    def predict_interval(self, X: Any, mass: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends of the central predictive interval of probability `mass`."""
        lower, upper = self.predictive(X).interval(mass)
        return self._shaped(lower), self._shaped(upper)

    def predict_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """Return quantiles of y in its shape; several levels q add a leading axis."""
        return self._shaped(self.predictive(X).quantile(q))

    def _shaped(self, values: Any) -> np.ndarray:
        return np.asarray(values)[..., 0] if self._flat else np.asarray(values)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
