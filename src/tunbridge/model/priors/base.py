"""Base classes and helpers of priors: protocol defaults, scales of arrays, and independent identical weights."""

import abc
import math
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.data import Data
from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.tree import ravel, size, unravel
from tunbridge.core.types import Key, Network, Prior, PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.networks import layout as axes


class AbstractPrior(Module):
    """Base of priors, by default without unknown scales and with the weights themselves as raw coordinates.

    A subclass needs `log_prob` and `sample`.
    """

    @property
    def proper(self) -> bool:
        """Whether the density integrates to one."""
        return True

    @property
    def gaussian(self) -> bool:
        """Whether raw coordinates are normal around 0, independently of the scales."""
        return False

    @property
    def discrete(self) -> bool:
        """Whether the scales include a whole number."""
        return False

    def given(self, network: Network, data: Data) -> Prior:
        """Return self: the density depends on the weights alone."""
        return self

    def bind(self, weights: PyTree, layout: PyTree) -> Prior:
        """Return self: the weights leave nothing to settle."""
        return self

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Weights from raw coordinates: the same."""
        return raw

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Raw coordinates from weights: the same."""
        return weights

    @abc.abstractmethod
    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of raw coordinates given the scales."""

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Raise InputError: no independent normal approximates this prior."""
        raise dependent(type(self).__name__)

    def log_heights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Raise InputError: no independent normal approximates this prior."""
        raise dependent(type(self).__name__)

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """Return 0: there are no unknown scales."""
        return jnp.zeros(())

    @abc.abstractmethod
    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (raw, scales) from the prior."""

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """Return (): there are no unknown scales."""
        return ()

    def values(self, scales: PyTree) -> PyTree:
        """Return (): there are no unknown scales."""
        return ()

    def marginal(self) -> Prior:
        """Return self: no scales are integrated out."""
        return self

    def corners(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree | None:
        """Return None: the density is smooth."""
        return None


def dependent(name: str) -> InputError:
    """InputError for a prior that no independent normal approximates."""
    return InputError(
        "a prior of independent weights, each normal or a scale mixture of normals, which Laplace needs",
        f"priors.{name}",
        "Use priors.Normal, or a sampler.",
    )


class FanIn(Module):
    """A scale to be divided by the square root of a weight's fan-in; see `fan_in`."""

    scale: Any


def fan_in(scale: Any = 1.0) -> FanIn:
    """Return the scale ``scale / sqrt(fan-in)``, which keeps sums over inputs equally large at any width.

    The fan-in of a bias is 1.
    """
    return FanIn(transforms.check_positive(scale, "scale"))


def as_scale(scale: Any) -> Any:
    """Validate a scale: a number, a distribution, `fan_in` of either, or a sequence of these, one per layer."""
    if isinstance(scale, Sequence) and not isinstance(scale, str):
        scale = tuple(scale)
    return transforms.check_positive(scale, "scale")


def check_scale(scale: Any, layout: PyTree) -> None:
    """Raise InputError for a fan-in without a known layout, or a wrong number of layers."""
    entries = scale if isinstance(scale, tuple) else (scale,)
    for entry in entries:
        value = entry.scale if isinstance(entry, FanIn) else entry
        shape = value.shape() if isinstance(value, Distribution) else jnp.shape(value)
        if shape != ():
            raise InputError("one number per scale", f"shape {shape}", "Write a tuple for one scale per layer.")
    if any(isinstance(entry, FanIn) for entry in entries):
        axes.require_known(layout, "priors.fan_in")
    if isinstance(scale, tuple):
        check_layers(len(scale), "scale", layout)


def check_layers(num: int, noun: str, layout: PyTree) -> None:
    """Raise InputError unless the network has `num` layers."""
    names = list(dict.fromkeys(axes.layers(layout)))
    if len(names) != num:
        raise InputError(
            f"one {noun} per layer, {len(names)} for {', '.join(names)}",
            f"{num}",
            f"Match the network's layers, or give one {noun} for all.",
        )


def deviations(scale: Any, like: PyTree, layout: PyTree) -> PyTree:
    """Scale of each array of weights, from a scale whose unknowns have been replaced by values."""
    leaves, treedef = jax.tree.flatten(like)
    roles = jax.tree.leaves(layout)
    if isinstance(scale, tuple):
        names = axes.layers(layout)
        order = list(dict.fromkeys(names))
        entries = [scale[order.index(name)] for name in names]
    else:
        entries = [scale] * len(leaves)
    return jax.tree.unflatten(treedef, [deviation(*row) for row in zip(entries, leaves, roles, strict=True)])


def deviation(entry: Any, leaf: Array, role: axes.Leaf) -> Any:
    """Scale of one array of weights."""
    return entry.scale / math.sqrt(role.fan_in(leaf.shape)) if isinstance(entry, FanIn) else entry


def log_height_of(log_density: Array, variance: Array) -> Array:
    """Log density relative to the peak of a normal of this variance."""
    return log_density + 0.5 * jnp.log(2.0 * jnp.pi * variance)


def draw(law: Distribution, key: Key, like: PyTree) -> PyTree:
    """Draw a tree of independent weights from one distribution."""
    drawn = unravel(like, law.sample(key, (size(like),)))
    return jax.tree.map(lambda leaf, values: values.astype(leaf.dtype), like, drawn)


def total(terms: PyTree) -> Scalar:
    """Sum of the scalars in a tree."""
    return sum(jax.tree.leaves(terms), start=jnp.zeros(()))


class Independent(AbstractPrior):
    r"""Independent weights :math:`w = s \, r` with identically distributed *r*, non-centred where *s* is unknown.

    A subclass needs a field `scale` and a method `law`.
    """

    scale: eqx.AbstractVar[Any]

    @abc.abstractmethod
    def law(self) -> Distribution:
        """Distribution of a weight with scale 1."""

    def log_law(self, r: Array) -> Scalar:
        """Log density, summed over an array of weights with scale 1; subclasses may override it with a faster form."""
        return jnp.sum(self.law().log_prob(r))

    def bind(self, weights: PyTree, layout: PyTree) -> Self:
        """Return self; InputError unless the scales fit the layers."""
        check_scale(self.scale, layout)
        return self

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Weights: raw coordinates, times the scale where it is unknown."""
        return jax.tree.map(jnp.multiply, raw, self._deviations(raw, scales, layout)) if scales else raw

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Raw coordinates: the inverse of `weights`."""
        return jax.tree.map(jnp.divide, weights, self._deviations(weights, scales, layout)) if scales else weights

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of the weights w = s r, or of r where s is unknown."""
        if scales:
            return self.log_law(ravel(raw))
        leaf_scales = self._deviations(raw, scales, layout)
        logs = jax.tree.map(lambda w, s: jnp.sum(jnp.log(s)) * (w.size // jnp.size(s)), raw, leaf_scales)
        return self.log_law(ravel(jax.tree.map(jnp.divide, raw, leaf_scales))) - total(logs)

    def em_variance(self, r: Array) -> Array:
        r"""The variance :math:`1 / E[\tau^{-2} \mid r] = -r / \frac{d}{dr} \log p(r)` of weights with scale 1.

        For scale mixtures of normals, :math:`N(0, \tau^2)` mixed over :math:`\tau`. Constant near 0, where the ratio is
        0 / 0.
        """
        absolute = jnp.maximum(jnp.abs(r), float(jnp.finfo(r.dtype).eps) ** (1 / 3))
        return -absolute / jax.grad(self.log_law)(absolute)

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Variance of each weight: the squared scale times that of a weight with scale 1."""

        def variance(leaf: Array, s: Any) -> Array:
            return jnp.broadcast_to(jnp.square(s), leaf.shape) * self.em_variance(leaf if scales else leaf / s)

        return jax.tree.map(variance, raw, self._deviations(raw, scales, layout))

    def log_heights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        r""":math:`\log(p(w) \sqrt{2 \pi V})` of each weight, V being its variance: the same at any scale."""

        def log_height(leaf: Array, s: Any) -> Array:
            r = leaf if scales else leaf / s
            log_density = jax.vmap(self.log_law)(jnp.ravel(r)).reshape(r.shape)
            return log_height_of(log_density, self.em_variance(r))

        return jax.tree.map(log_height, raw, self._deviations(raw, scales, layout))

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log prior density of the unknown scales, on the real line if `jacobian`."""
        return transforms.log_prob(self.scale, scales, jacobian=jacobian)

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (raw, scales) from the prior."""
        key_scales, key_weights = jax.random.split(key)
        scales = transforms.sample(self.scale, key_scales)
        raw = draw(self.law(), key_weights, like)
        return (raw if scales else jax.tree.map(jnp.multiply, raw, self._deviations(like, (), layout))), scales

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """The unknown scales at the medians of their priors, as real coordinates."""
        return transforms.median(self.scale)

    def values(self, scales: PyTree) -> PyTree:
        """Values of the unknown scales, in their natural units."""
        return transforms.natural(self.scale, scales)

    def _deviations(self, like: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        return deviations(transforms.values(self.scale, scales), like, layout)


NORMAL = dist.Normal(0.0, 1.0, validate_args=False)
"""Distribution of non-centred raw coordinates, unvalidated: steps with non-finite weights are detected elsewhere."""
