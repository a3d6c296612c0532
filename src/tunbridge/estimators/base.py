"""The base class of both estimators: their parameters, the fit, and the predictive distribution."""

import abc
import numbers
import os
from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from tunbridge.core.declared import shown
from tunbridge.core.errors import InputError
from tunbridge.core.names import METHODS, UnknownNameError
from tunbridge.core.types import Likelihood, Network, Predictive, Prior
from tunbridge.estimators.parameters import changed, nested
from tunbridge.estimators.rows import distinct
from tunbridge.inference.base import Method
from tunbridge.inference.standardised import Standardised, fit_standardised
from tunbridge.model import defaults
from tunbridge.model.model import Model


class BayesianEstimator(BaseEstimator, abc.ABC):
    """A model and a method as a scikit-learn estimator."""

    def __init__(
        self,
        method: str | Method = "auto",
        network: Network | Sequence[int] | None = None,
        prior: str | Prior | None = None,
        likelihood: str | Likelihood | None = None,
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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters by name; with `deep` also their nested fields, such as "method__point__step_size"."""
        params = super().get_params(deep=False)
        if not deep:
            return params
        return params | {path: value for name in params for path, value in nested(name, self._part(name)).items()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters or their nested fields; a part whose field changes is replaced by a new one."""
        own = {name: value for name, value in params.items() if "__" not in name}
        changes: dict[str, dict[str, Any]] = {}
        for path in sorted(set(params) - set(own)):
            name, _, rest = path.partition("__")
            changes.setdefault(name, {})[rest] = params[path]
        super().set_params(**own, **{name: getattr(self, name, None) for name in changes if name not in own})
        for name, more in changes.items():
            setattr(self, name, changed(name, self._part(name), more))
        return self

    def _part(self, name: str) -> Any:
        """Return a parameter with a name, a list of hidden units or None resolved to the object that it stands for."""
        given = getattr(self, name)
        if name in _NAMED and isinstance(given, str):
            try:
                return _NAMED[name](given)
            except UnknownNameError:  # parameters may be read and set in any order; fit refuses the name
                return given
        if name == "network" and (given is None or isinstance(given, list | tuple)):
            return as_network(given, self._parts())
        if name == "prior" and given is None:
            return self._parts().prior()
        return given

    def _parts(self) -> defaults.Parts:
        """The default parts of a model for the method; those of most methods where it is not one."""
        method = self._part("method")
        return method.parts if isinstance(method, Method) else defaults.DENSE

    def predictive(self, X: Any) -> Predictive:
        """The predictive distribution at X, in the units of the data: `log_prob`, `epistemic`, `sample` and the rest.

        Its answers have shape (points, outputs) even if y was a vector. Classes are numbered as in `classes_`.
        """
        check_is_fitted(self)
        return self.posterior_.predict(validate_data(self, X, dtype=np.float64, reset=False))

    def _learn(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, likelihood: Likelihood) -> None:
        """Fit the standardised model to the distinct rows with positive weight."""
        rows = distinct(x, y, weight)
        method = self._resolved()
        network = as_network(self.network, method.parts, len(rows[0]))
        prior = method.parts.prior() if self.prior is None else as_prior(self.prior)
        if len(rows[0]) < 2:
            raise InputError(
                "at least 2 distinct rows with positive weight",
                f"{len(rows[0])} sample(s)",
                "Check how rows were chosen.",
            )
        try:
            seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        except (ValueError, TypeError) as error:
            raise InputError("random_state= as a seed or a RandomState", shown(self.random_state), "Use 0.") from error
        self.posterior_: Standardised = fit_standardised(
            method,
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


_NAMED = {
    "method": lambda name: METHODS[name](),
    "prior": defaults.named_prior,
    "likelihood": defaults.named_likelihood,
}


def as_prior(given: str | Prior) -> Prior:
    """Return `given` as a prior: a prior unchanged, or the prior of a name."""
    return defaults.named_prior(given) if isinstance(given, str) else given


def as_likelihood(given: str | Likelihood | None, default: Likelihood) -> Likelihood:
    """Return `given` as a likelihood: a likelihood unchanged, the likelihood of a name, None as `default`."""
    if given is None:
        return default
    return defaults.named_likelihood(given) if isinstance(given, str) else given


def as_network(given: Any, parts: defaults.Parts, rows: int = 0) -> Network:
    """Return `given` as a network: a network unchanged; hidden units, or None, as the default of these parts."""
    if given is None:
        return parts.network(rows, None)
    if isinstance(given, list | tuple):
        if all(isinstance(units, int | np.integer) and not isinstance(units, bool) and units > 0 for units in given):
            return parts.network(rows, tuple(int(units) for units in given))
    elif isinstance(given, Network) and not isinstance(given, type):
        return given
    expected = "network= as a network, or the units of its hidden layers as positive whole numbers"
    raise InputError(expected, repr(given)[:60], "Write network=(50, 50), or network=tb.networks.MLP((50, 50)).")


def weights(sample_weight: Any, x: np.ndarray) -> np.ndarray | None:
    """Return the checked sample weights, one per row and none negative; None if none are given."""
    if sample_weight is None:
        return None
    given = np.full(len(x), sample_weight) if isinstance(sample_weight, numbers.Real) else sample_weight
    weight = check_array(given, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weight.ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar, got {weight.ndim}D array.")
    check_consistent_length(weight, x)
    if (weight < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`.")
    if not weight.any():
        raise ValueError("Sample weights must not all be zero.")
    return weight
