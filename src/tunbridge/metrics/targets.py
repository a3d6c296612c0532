"""What scores need of a predictive distribution, and the targets that it is compared with."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.declared import as_floats
from tunbridge.core.errors import InputError


class PredictiveOfClasses(Protocol):
    """A predictive distribution over classes, such as `tunbridge.Predictive` of labels."""

    @property
    def probs(self) -> Array:
        """Probability of each class, (points, classes)."""
        ...


class PredictiveOfNumbers(Protocol):
    """A predictive distribution over numbers, counts or ordered classes, such as `tunbridge.Predictive` of them."""

    @property
    def discrete(self) -> bool:
        """Whether y are ordered whole numbers."""
        ...

    @property
    def mean(self) -> Array:
        """Expected y, (points, outputs)."""
        ...

    def quantile(self, q: Any) -> Array:
        """Quantiles at level q, (points, outputs); for several levels (levels, points, outputs)."""
        ...

    def interval(self, mass: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper end of the central interval, (points, outputs) each."""
        ...

    def cdf(self, y: Any) -> Array:
        """P(Y <= y) per output, (..., points, outputs)."""
        ...


class PredictiveDensity(Protocol):
    """A predictive distribution with a log density, such as `tunbridge.Predictive`."""

    def log_prob(self, y: Any) -> Array:
        """Log p(y), (points,)."""
        ...


def probs(predictive: Any) -> np.ndarray | None:
    """Probabilities of the classes (points, classes); None for a predictive of numbers, which has none."""
    try:
        return np.asarray(predictive.probs, np.float64)
    except InputError:
        return None


def column(predictive: PredictiveOfNumbers, y: Any) -> Array:
    """Targets as an array (points, outputs), checked to be finite and to have the shape of the predictive's mean."""
    values = as_floats(y, "y")
    values = values[:, None] if values.ndim == 1 else values
    if values.shape != predictive.mean.shape:
        raise InputError(f"y of shape {predictive.mean.shape}", f"shape {values.shape}", "Pass the targets of x.")
    with np.errstate(over="ignore"):
        cast = values.astype(jax.dtypes.canonicalize_dtype(float))
    if not np.isfinite(cast).all():
        raise InputError("finite numbers in y", f"NaN or infinity (as {cast.dtype})", "Drop these rows.")
    return jnp.asarray(cast)


def labels(predictive: PredictiveOfClasses, y: Any) -> Array:
    """Targets as integers (points,), checked to be class numbers."""
    values = as_floats(y, "y").reshape(-1)
    num, classes = predictive.probs.shape
    whole = (values >= 0) & (values < classes) & (values == np.round(values))
    if values.shape != (num,) or not whole.all():
        limits = f" from {values.min():g} to {values.max():g}" if values.size else ""
        raise InputError(f"{num} labels from 0 to {classes - 1}", f"{len(values)}{limits}", "Pass the labels of x.")
    return jnp.asarray(values.astype(np.int32))
