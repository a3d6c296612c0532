"""The kinds of likelihood: of real numbers, of counts, of classes; and what families with unknowns share."""

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


class Noisy(Module):
    """A likelihood whose own numbers are known, or unknown with a prior."""

    @property
    @abc.abstractmethod
    def numbers(self) -> PyTree:
        """Its own numbers, each a value or a prior: a spec of `tunbridge.model.transforms`."""

    def sample_noise(self, key: Key) -> PyTree:
        """A draw of the unknown numbers."""
        return transforms.sample(self.numbers, key)

    def log_noise(self, noise: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log p of the unknown numbers."""
        return transforms.log_prob(self.numbers, noise, jacobian=jacobian)

    def median_noise(self) -> PyTree:
        """The unknown numbers at the medians of their priors."""
        return transforms.median(self.numbers)

    def values(self, noise: PyTree = ()) -> PyTree:
        """Its own numbers at these unknowns."""
        return transforms.values(self.numbers, noise)


class _Curved(Module):
    """A likelihood whose information on the outputs has a root, point by point."""

    @abc.abstractmethod
    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        """R (points, outputs, columns) with R R^T the Fisher information of the outputs."""

    def hessian_root(self, outputs: Array, y: Array, noise: PyTree = ()) -> Array:
        """`fisher_root`: the Hessian itself where the link is canonical, and in its place where it is of no use."""
        return self.fisher_root(outputs, noise)


class _Matrix(_Curved):
    """y (points, outputs), independent over outputs given the network."""

    def with_outputs(self, num: int) -> Self:
        """Itself."""
        return self

    def bind(self, y: Array) -> Self:
        """Itself."""
        return self

    @abc.abstractmethod
    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Over y (outputs,) at each point."""


class OfNumbers(_Matrix):
    """y (points, outputs) of real numbers, each around a centre."""

    def check(self, y: Array) -> Array:
        """Y as a matrix of floats."""
        y = y[:, None] if y.ndim == 1 else y
        return y.astype(jax.dtypes.canonicalize_dtype(float))

    def num_outputs(self, y: Array) -> int:
        """One per output of y."""
        return y.shape[1]

    def measured(self, y: Array) -> np.ndarray:
        """Which columns of y have units, (outputs,): all."""
        return np.ones(y.shape[1], bool)

    @abc.abstractmethod
    def in_units(self, scale: Array) -> Self:
        """The same noise for y / scale: known numbers are converted."""

    def shrunk(self, y: Array, outputs: Array, noise: PyTree, share: float) -> Array:
        """Y moved towards the centres, to that share of its residuals."""
        centre = self.distribution(outputs, noise).base_dist.loc
        return centre + share * (y - centre)


class OneScale(Noisy, OfNumbers):
    """Numbers with noise of one scale, or one per output, around the outputs."""

    scale: eqx.AbstractVar[Any]

    @property
    def numbers(self) -> PyTree:
        """The scale."""
        return self.scale

    def num_outputs(self, y: Array) -> int:
        """One per output of y."""
        check_width(self.scale, "scale", y.shape[1])
        return y.shape[1]

    def in_units(self, scale: Array) -> Self:
        """The same noise for y / scale; a prior refers to the new units as it stands."""
        return dataclasses.replace(self, scale=transforms.divided(self.scale, scale))


class OfCounts(_Matrix):
    """y (points, outputs) of whole numbers from 0 on."""

    def check(self, y: Array) -> Array:
        """Y as a matrix of whole numbers, as floats."""
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
        """One log rate an output of y."""
        return y.shape[1]

    def measured(self, y: Array) -> np.ndarray:
        """Which columns of y have units, (outputs,): none."""
        return np.zeros(y.shape[1], bool)

    def in_units(self, scale: Array) -> Self:
        """Itself: counts are never scaled."""
        return self

    def shrunk(self, y: Array, outputs: Array, noise: PyTree, share: float) -> Array:
        """Y as it is."""
        return y


class OfClasses(_Curved):
    """y (points,) of labels 0, 1, ..."""

    def with_outputs(self, num: int) -> Self:
        """Itself."""
        return self

    def bind(self, y: Array) -> Self:
        """The same for as many classes as these labels have, where it leaves the number open."""
        return self.with_outputs(self.num_outputs(y))

    @abc.abstractmethod
    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Over the label at each point."""

    @abc.abstractmethod
    def log_probs(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Log probability of each class, (points, classes)."""

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        r"""A column per class, :math:`\sqrt{p_c} \, \nabla_f \log p_c`."""

        def one(f: Array) -> Array:
            return self.log_probs(f[None], noise)[0]

        slopes = jax.vmap(jax.jacrev(one))(outputs)
        return jnp.swapaxes(jnp.exp(0.5 * self.log_probs(outputs, noise))[..., None] * slopes, -1, -2)

    @abc.abstractmethod
    def num_classes(self, y: Array) -> int:
        """How many classes there are, given labels."""

    @abc.abstractmethod
    def num_outputs(self, y: Array) -> int:
        """How many outputs the network needs."""

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

    def measured(self, y: Array) -> np.ndarray:
        """Which columns of y have units: labels have none."""
        return np.zeros(1, bool)

    def in_units(self, scale: Array) -> Self:
        """Itself: labels have no units."""
        return self

    def shrunk(self, y: Array, outputs: Array, noise: PyTree, share: float) -> Array:
        """Y as it is: a label has no residual."""
        return y


def counted(classes: int | None, y: Array) -> int:
    """As said, or the largest label plus one, at least 2."""
    return classes if classes is not None else max(int(np.max(np.asarray(y))) + 1, 2)


_MOST_CLASSES = 2**20


def check_classes(classes: int | None) -> None:
    """InputError unless there are at least 2, and not more than memory is spent on unasked; None counts the labels."""
    if classes is not None and not 2 <= classes <= _MOST_CLASSES:
        expected = f"at least 2 classes, and at most {_MOST_CLASSES:,}"
        raise InputError(expected, f"{classes}", "Leave classes=None to count the labels.")


def check_width(spec: PyTree, name: str, width: int) -> None:
    """InputError unless each number of the spec is one, or one per output."""
    for shape in transforms.shapes(spec):
        if shape not in ((), (1,), (width,)):
            raise InputError(f"a {name} of shape () or ({width},)", f"shape {shape}", "Give one, or one per output.")


def by_output(value: Array, outputs: Array) -> Array:
    """One number, or one per output, as an array like the outputs."""
    return jnp.broadcast_to(jnp.broadcast_to(value, outputs.shape[-1:]), outputs.shape)


def diagonal(values: Array) -> Array:
    """Each point's numbers (points, outputs) as a diagonal matrix (points, outputs, outputs)."""
    return values[..., None] * jnp.eye(values.shape[-1], dtype=values.dtype)[None]
