"""The base class of predictive distributions."""

import abc
from typing import Any

import numpy as np
from jax import Array

from tunbridge.core import tables
from tunbridge.core.declared import as_floats, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.core.tree import on_host
from tunbridge.core.types import Key

_MOST_ROWS = 5
"""How many points are shown in a notebook."""


class AbstractPredictive(abc.ABC):
    """A distribution over y at each point; see the protocol `tunbridge.Predictive`."""

    discrete: bool = False
    """Whether y takes ordered whole-number values: counts, or numbers of ordered classes."""

    @property
    @abc.abstractmethod
    def mode(self) -> Array:
        """The most probable value."""

    @property
    @abc.abstractmethod
    def entropy(self) -> Array:
        """Entropy of y, in nats."""

    @property
    @abc.abstractmethod
    def aleatoric(self) -> Array:
        """The uncertainty that would remain if the weights were known."""

    @property
    @abc.abstractmethod
    def epistemic(self) -> Array:
        """The uncertainty due to not knowing the weights."""

    @property
    @abc.abstractmethod
    def functions(self) -> Array:
        """The mean of y, or the class probabilities, under each network."""

    @property
    def total(self) -> Array:
        """Aleatoric + epistemic."""
        return on_host(np.add, self.aleatoric, self.epistemic)

    @property
    def mean(self) -> Array:
        """Mean of y; InputError unless a subclass defines it."""
        raise _undefined("a mean", "numbers", "Use .probs or .mode.")

    @property
    def variance(self) -> Array:
        """Variance of y; InputError unless a subclass defines it."""
        raise _undefined("a variance", "numbers", "Use .entropy or .total.")

    @property
    def std(self) -> Array:
        """Standard deviation of y."""
        return on_host(np.sqrt, self.variance)

    def _shown(self) -> dict[str, Array]:
        """Columns for a notebook, (points, ...) each."""
        return {"mean": self.mean, "std": self.std}

    def _repr_html_(self) -> str:
        columns = {name: np.asarray(values) for name, values in self._shown().items()}
        num = len(next(iter(columns.values())))
        rows = [
            {"point": str(i), **{name: _listed(values[i]) for name, values in columns.items()}}
            for i in range(min(num, _MOST_ROWS))
        ]
        return tables.to_html(rows, f"{type(self).__name__}: {num:,} points")

    @property
    def probs(self) -> Array:
        """Class probabilities; InputError unless a subclass defines them."""
        raise _undefined("class probabilities", "classes", "Use .mean, .std or .quantile.")

    def quantile(self, q: Any) -> Array:
        """Quantiles of y; InputError unless a subclass defines them."""
        raise _undefined("quantiles", "numbers", "Use .probs.")

    @checked
    def interval(self, mass: float = 0.9) -> tuple[Array, Array]:
        """Central interval of probability `mass`: the quantiles at (1 - mass) / 2 and (1 + mass) / 2."""
        if not 0.0 < mass < 1.0:
            raise InputError("a mass between 0 and 1", f"{mass}", "Write 0.9 for 90 %.")
        both = self.quantile(np.array([0.5 - mass / 2, 0.5 + mass / 2]))
        return on_host(lambda values: values[0], both), on_host(lambda values: values[1], both)

    def cdf(self, y: Any) -> Array:
        """P(Y <= y); InputError unless a subclass defines it."""
        raise _undefined("a distribution function", "numbers", "Use .probs.")

    def log_probs(self, y: Any) -> Array:
        """Log p(y) under each network; InputError unless a subclass defines it."""
        raise _undefined("a density for each", "networks", "Use .log_prob.")

    def cdfs(self, y: Any) -> Array:
        """P(Y <= y) under each network; InputError unless a subclass defines it."""
        raise _undefined("a distribution function for each", "networks and numbers", "Use .functions.")

    def replicates(self, key: Key) -> Array:
        """A draw of y from each network; InputError unless a subclass defines it."""
        raise _undefined("a draw from each", "networks", "Use .sample.")

    @abc.abstractmethod
    def log_prob(self, y: Any) -> Array:
        """Log p(y), (points,)."""

    @abc.abstractmethod
    def sample(self, key: Key, num: int) -> Array:
        """Draws of y, (num, points, ...)."""


def levels_of(q: Any, dtype: Any = np.float64) -> np.ndarray:
    """A level, or several (levels,), as an array; InputError unless they are between 0 and 1 in this precision."""
    levels = as_floats(q, "q").astype(dtype)
    if levels.ndim > 1 or not levels.size or not ((levels > 0) & (levels < 1)).all():
        raise InputError(f"levels between 0 and 1 as {levels.dtype}", shown(q), "Write 0.05, or [0.05, 0.95].")
    return levels


def values_at(y: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return y as a float64 array (..., *shape); InputError if it is empty or has another shape."""
    values = as_floats(y, "y")
    if values.shape[-len(shape) :] != shape or not values.size:
        expected = f"(..., {', '.join(map(str, shape))})"
        raise InputError(f"y of shape {expected}", f"shape {values.shape}", "Reshape y.")
    return values


def targets(y: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return y as a float64 array of this shape, where a 1-D array becomes a column; InputError for other shapes."""
    values = as_floats(y, "y")
    values = values[:, None] if values.ndim == 1 else values
    if values.shape != shape:
        raise InputError(f"y of shape {shape}", f"shape {values.shape}", "Pass the targets of x.")
    return values


def _listed(values: np.ndarray) -> str:
    return ", ".join(tables.written(float(value)) for value in np.ravel(values))


def _undefined(what: str, kind: str, do: str) -> InputError:
    return InputError(f"a predictive of {kind}, which has {what}", "one of another kind", do)
