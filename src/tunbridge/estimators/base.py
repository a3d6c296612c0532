"""What both estimators share: parameters without logic, one fit, one predictive."""

import abc
import os
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from tunbridge.core.errors import InputError
from tunbridge.core.types import Likelihood, Network, Predictive, Prior
from tunbridge.estimators.rows import distinct
from tunbridge.inference.base import Method
from tunbridge.inference.registry import METHODS
from tunbridge.inference.standardised import Standardised, fit_standardised
from tunbridge.model import defaults
from tunbridge.model.model import Model


class BayesianEstimator(BaseEstimator, abc.ABC):
    """A model and a method as a scikit-learn estimator."""

    def __init__(
        self,
        method: str | Method = "laplace",
        network: Network | None = None,
        prior: Prior | None = None,
        likelihood: Likelihood | None = None,
        checkpoint: str | os.PathLike | None = None,
        max_seconds: float | None = None,
        progress: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.method = method
        self.network = network
        self.prior = prior
        self.likelihood = likelihood
        self.checkpoint = checkpoint
        self.max_seconds = max_seconds
        self.progress = progress
        self.random_state = random_state

    def predictive(self, X: Any) -> Predictive:
        """The predictive distribution at X, in the units of the data: `log_prob`, `epistemic`, `sample` and the rest.

        It is a matrix also where y was not: (points, outputs). Classes are numbered as in `classes_`.
        """
        check_is_fitted(self)
        return self.posterior_.predict(validate_data(self, X, dtype=np.float64, reset=False))

    def _learn(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, likelihood: Likelihood) -> None:
        """Fit the standardised model to the rows that count."""
        network = defaults.network() if self.network is None else self.network
        prior = defaults.prior() if self.prior is None else self.prior
        rows = distinct(x, y, weight)
        if len(rows[0]) < 2:
            raise InputError(
                "at least 2 rows that count and differ", f"{len(rows[0])} sample(s)", "Check how rows were chosen."
            )
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        self.posterior_: Standardised = fit_standardised(
            self._resolved(),
            Model(network, prior, likelihood),
            *rows,
            key=jax.random.key(seed),
            checkpoint=self.checkpoint,
            max_seconds=self.max_seconds,
            progress=self.progress,
        )

    def _resolved(self) -> Method:
        if isinstance(self.method, str):
            return METHODS[self.method]()
        if not isinstance(self.method, Method):
            raise InputError("method= as a name or a method", repr(self.method)[:60], 'Write "map", or tb.MAP().')
        return self.method


def weights(sample_weight: Any, x: np.ndarray) -> np.ndarray | None:
    """Sample weights, one a row and none negative; None where none are given."""
    if sample_weight is None:
        return None
    return _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
