"""Base classes of likelihoods: of real numbers, of counts and of classes, with or without unknown parameters."""

import abc
import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.model import transforms


class Noiseless(Module):
    """A likelihood without unknown parameters of its own."""

    def sample_noise(self, key: Key) -> PyTree:
        """Return (): there is nothing unknown to draw."""
        return ()

    def log_noise(self, noise: PyTree, *, jacobian: bool = True) -> Scalar:
        """Return 0: nothing is unknown."""
        return jnp.zeros(())

    def median_noise(self) -> PyTree:
        """Return (): nothing is unknown."""
        return ()


class Noisy(Module):
    """A likelihood with parameters of its own, each known or unknown with a prior."""

    @property
    @abc.abstractmethod
    def numbers(self) -> PyTree:
        """The likelihood's own parameters, each a value or a prior, as a spec of `tunbridge.model.transforms`."""

    def sample_noise(self, key: Key) -> PyTree:
        """Draw the unknown parameters from their priors, as real coordinates."""
        return transforms.sample(self.numbers, key)

    def log_noise(self, noise: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log prior density of the unknown parameters, on the real line if `jacobian`."""
        return transforms.log_prob(self.numbers, noise, jacobian=jacobian)

    def median_noise(self) -> PyTree:
        """The unknown parameters at the medians of their priors, as real coordinates."""
        return transforms.median(self.numbers)

    def values(self, noise: PyTree = ()) -> PyTree:
        """Values of the likelihood's own parameters, given the unknown ones."""
        return transforms.values(self.numbers, noise)


class _Curved(Module):
    """A likelihood whose Fisher information about the outputs has a known root at each point."""

    @abc.abstractmethod
    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        """R (points, outputs, columns) with R R^T the Fisher information of the outputs."""

    def hessian_root(self, outputs: Array, y: Array, noise: PyTree = ()) -> Array:
        """`fisher_root`: exact where the link is canonical, a substitute where the Hessian is zero or indefinite."""
        return self.fisher_root(outputs, noise)


class _Matrix(_Curved):
    """A likelihood of y (points, outputs), independent over outputs given the network."""

    def with_outputs(self, num: int) -> Self:
        """Return self: the number of outputs leaves nothing to settle."""
        return self

    def bind(self, y: Array) -> Self:
        """Return self: y leaves nothing to settle."""
        return self

    @abc.abstractmethod
    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Distribution of y (outputs,) at each point."""


class OfNumbers(_Matrix):
    """A likelihood of real numbers y (points, outputs), each around a centre."""

    def check(self, y: Array) -> Array:
        """Return y as a matrix of floats."""
        y = y[:, None] if y.ndim == 1 else y
        return y.astype(jax.dtypes.canonicalize_dtype(float))

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs: one per column of y."""
        return y.shape[1]

    def measured(self, y: Array) -> np.ndarray:
        """Mask (outputs,) of the columns of y that have units: all of them."""
        return np.ones(y.shape[1], bool)

    @abc.abstractmethod
    def in_units(self, scale: Array) -> Self:
        """Return the same likelihood for y / scale: known parameters are converted."""

    def shrunk(self, y: Array, outputs: Array, noise: PyTree, share: float) -> Array:
        """Return y with its residuals from the centres multiplied by `share`."""
        centre = self.distribution(outputs, noise).base_dist.loc
        return centre + share * (y - centre)


class OneScale(Noisy, OfNumbers):
    """A likelihood of real numbers around the outputs, with one noise scale or one per output."""

    scale: eqx.AbstractVar[Any]

    @property
    def numbers(self) -> PyTree:
        """The noise scale, a value or a prior."""
        return self.scale

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs: one per column of y."""
        check_width(self.scale, "scale", y.shape[1])
        return y.shape[1]

    def in_units(self, scale: Array) -> Self:
        """Return the same likelihood for y / scale; a prior is kept, and refers to the new units."""
        return dataclasses.replace(self, scale=transforms.divided(self.scale, scale))


class OfCounts(_Matrix):
    """A likelihood of counts y (points, outputs), whole numbers from 0 on."""

    def check(self, y: Array) -> Array:
        """Return y as a matrix of floats; InputError unless all are whole numbers from 0 on."""
        y = y[:, None] if y.ndim == 1 else y
        counts = np.asarray(y)
        wrong = counts[(counts < 0) | (counts != np.round(counts))]
        if wrong.size:
            raise InputError(
                f"whole numbers from 0 on as y of {type(self).__name__}",
                f"{wrong[0]:g}",
                "Pass counts as they are, neither scaled nor divided by an exposure (tb.networks.Offset takes that).",
            )
        return y.astype(jax.dtypes.canonicalize_dtype(float))

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs: one log rate per column of y."""
        return y.shape[1]

    def measured(self, y: Array) -> np.ndarray:
        """Mask (outputs,) of the columns of y that have units: none."""
        return np.zeros(y.shape[1], bool)

    def in_units(self, scale: Array) -> Self:
        """Return self: counts are never scaled."""
        return self

    def shrunk(self, y: Array, outputs: Array, noise: PyTree, share: float) -> Array:
        """Return y unchanged: counts are not moved towards their means."""
        return y


class OfClasses(_Curved):
    """A likelihood of class labels y (points,), numbered 0, 1, ..."""

    def with_outputs(self, num: int) -> Self:
        """Return self: the number of outputs leaves nothing to settle."""
        return self

    def bind(self, y: Array) -> Self:
        """Return the same likelihood, with the number of classes taken from the labels if it was left open."""
        return self.with_outputs(self.num_outputs(y))

    @abc.abstractmethod
    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Distribution of the label at each point."""

    @abc.abstractmethod
    def log_probs(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Log probability of each class, (points, classes)."""

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        r"""Root of the Fisher information, with a column :math:`\sqrt{p_c} \, \nabla_f \log p_c` per class."""

        def log_probs_of_row(f: Array) -> Array:
            return self.log_probs(f[None], noise)[0]

        gradients = jax.vmap(jax.jacrev(log_probs_of_row))(outputs)
        return jnp.swapaxes(jnp.exp(0.5 * self.log_probs(outputs, noise))[..., None] * gradients, -1, -2)

    @abc.abstractmethod
    def num_classes(self, y: Array) -> int:
        """Number of classes, given labels."""

    @abc.abstractmethod
    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs."""

    def check(self, y: Array) -> Array:
        """Return labels as integers (points,); InputError unless each is the number of a class."""
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

    def measured(self, y: Array) -> np.ndarray:
        """Mask (1,) of the columns of y that have units: labels have none."""
        return np.zeros(1, bool)

    def in_units(self, scale: Array) -> Self:
        """Return self: labels have no units."""
        return self

    def shrunk(self, y: Array, outputs: Array, noise: PyTree, share: float) -> Array:
        """Return y unchanged: a label has no residual."""
        return y


def counted(classes: int | None, y: Array) -> int:
    """Number of classes: `classes` if given, else the largest label plus one, at least 2."""
    return classes if classes is not None else max(int(np.max(np.asarray(y))) + 1, 2)


_MOST_CLASSES = 2**20


def check_classes(classes: int | None) -> None:
    """Raise InputError unless `classes` is None (count the labels) or from 2 to a limit that guards memory."""
    if classes is not None and not 2 <= classes <= _MOST_CLASSES:
        expected = f"at least 2 classes, and at most {_MOST_CLASSES:,}"
        raise InputError(expected, f"{classes}", "Leave classes=None to count the labels.")


def check_width(spec: PyTree, name: str, width: int) -> None:
    """Raise InputError unless each entry of the spec is a scalar or has one value per output."""
    for shape in transforms.shapes(spec):
        if shape not in ((), (1,), (width,)):
            raise InputError(f"a {name} of shape () or ({width},)", f"shape {shape}", "Give one, or one per output.")


def by_output(value: Array, outputs: Array) -> Array:
    """Broadcast a scalar, or one value per output, to the shape of the outputs."""
    return jnp.broadcast_to(jnp.broadcast_to(value, outputs.shape[-1:]), outputs.shape)


def diagonal(values: Array) -> Array:
    """Diagonal matrices (points, outputs, outputs) of each point's values (points, outputs)."""
    return values[..., None] * jnp.eye(values.shape[-1], dtype=values.dtype)[None]
