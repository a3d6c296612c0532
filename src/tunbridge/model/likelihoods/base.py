"""The two kinds of likelihood: of numbers, and of unordered classes."""

import abc
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree, Scalar


class Noiseless(eqx.Module):
    """A likelihood without unknowns of its own."""

    def sample_noise(self, key: Key) -> PyTree:
        """None."""
        return ()

    def log_noise(self, noise: PyTree, *, jacobian: bool = True) -> Scalar:
        """0: nothing is unknown."""
        return jnp.zeros(())

    def median_noise(self) -> PyTree:
        """None."""
        return ()


class OfNumbers(eqx.Module):
    """y (points, outputs) of real numbers, with a mean, a variance and quantiles an output."""

    def with_outputs(self, num: int) -> Self:
        """Itself."""
        return self

    @abc.abstractmethod
    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Over y (outputs,) at each point."""

    def check(self, y: Array) -> Array:
        """Y as a matrix of floats."""
        y = y[:, None] if y.ndim == 1 else y
        return y.astype(jax.dtypes.canonicalize_dtype(float))


class OfClasses(eqx.Module):
    """y (points,) of labels 0, 1, ..., without an order."""

    def with_outputs(self, num: int) -> Self:
        """Itself."""
        return self

    @abc.abstractmethod
    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Over the label at each point."""

    @abc.abstractmethod
    def num_classes(self, y: Array) -> int:
        """How many classes there are, given labels."""

    def check(self, y: Array) -> Array:
        """Y as integers (points,), each the number of a class."""
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim != 1:
            raise InputError(
                f"labels of shape (points,) for {type(self).__name__}",
                f"shape {y.shape}",
                "Pass class numbers, not one-hot rows (y.argmax(1) turns these into numbers).",
            )
        labels = np.asarray(y)
        if not np.equal(labels, np.round(labels)).all():
            raise InputError("whole numbers as labels", f"{labels[labels != np.round(labels)][0]}", "Encode labels.")
        top = self.num_classes(y) - 1
        if labels.min() < 0 or labels.max() > top:
            raise InputError(
                f"labels from 0 to {top} for {type(self).__name__}",
                f"labels from {int(labels.min())} to {int(labels.max())}",
                "Number the classes from 0, or say how many there are.",
            )
        return y.astype(jnp.int32)

    def in_units(self, scale: Array) -> Self:
        """Itself: labels have no units."""
        return self
