"""What priors share: defaults of the protocol, scales of leaves, and independent weights of one law."""

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

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.tree import ravel, size, unravel
from tunbridge.core.types import Key, Prior, PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.networks import layout as axes


class AbstractPrior(Module):
    """A prior without unknowns of its own, in the weights' own coordinates, unless a subclass says otherwise.

    A new one needs `log_prob` and `sample`.
    """

    @property
    def proper(self) -> bool:
        """Whether it integrates to one."""
        return True

    @property
    def gaussian(self) -> bool:
        """Whether raw coordinates are normal around 0 whatever the scales."""
        return False

    def bind(self, weights: PyTree, layout: PyTree) -> Prior:
        """Itself."""
        return self

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """The raw coordinates themselves."""
        return raw

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """The weights themselves."""
        return weights

    @abc.abstractmethod
    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log p(raw | scales)."""

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Refused: no independent normal stands for it."""
        raise dependent(type(self).__name__)

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """0: nothing is unknown."""
        return jnp.zeros(())

    @abc.abstractmethod
    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """A draw of (raw, scales)."""

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """None."""
        return ()

    def values(self, scales: PyTree) -> PyTree:
        """None."""
        return ()

    def marginal(self) -> Prior:
        """Itself."""
        return self

    def corners(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree | None:
        """None: the density is smooth."""
        return None


def dependent(name: str) -> InputError:
    """The reason why a prior that no independent normal stands for is refused."""
    return InputError(
        "a prior of independent weights, each normal or a scale mixture of normals, which Laplace needs",
        f"priors.{name}",
        "Use priors.Normal, or a sampler.",
    )


class FanIn(Module):
    """A scale to be divided by the square root of a weight's fan-in; see `fan_in`."""

    scale: Any


def fan_in(scale: Any = 1.0) -> FanIn:
    """The scale ``scale / sqrt(fan-in)``: sums over inputs keep their size whatever the width.

    The fan-in of a bias is 1.
    """
    return FanIn(transforms.check_positive(scale, "scale"))


def as_scale(scale: Any) -> Any:
    """A scale as priors take it: a number, a distribution, `fan_in` of either, or one of these a layer."""
    if isinstance(scale, Sequence) and not isinstance(scale, str):
        scale = tuple(scale)
    return transforms.check_positive(scale, "scale")


def check_scale(scale: Any, layout: PyTree) -> None:
    """Refuse a fan-in without a layout, and a wrong number of layers."""
    entries = scale if isinstance(scale, tuple) else (scale,)
    for entry in entries:
        one = entry.scale if isinstance(entry, FanIn) else entry
        shape = one.shape() if isinstance(one, Distribution) else jnp.shape(one)
        if shape != ():
            raise InputError("one number a scale", f"shape {shape}", "Write a tuple for one scale per layer.")
    if any(isinstance(entry, FanIn) for entry in entries):
        axes.require_known(layout, "priors.fan_in")
    if isinstance(scale, tuple):
        check_layers(len(scale), "scale", layout)


def check_layers(num: int, noun: str, layout: PyTree) -> None:
    """InputError unless there are `num` layers."""
    names = list(dict.fromkeys(axes.layers(layout)))
    if len(names) != num:
        raise InputError(
            f"one {noun} per layer, {len(names)} for {', '.join(names)}",
            f"{num}",
            f"Match the network's layers, or give one {noun} for all.",
        )


def deviations(scale: Any, like: PyTree, layout: PyTree) -> PyTree:
    """The scale of each leaf, unknowns replaced by their values beforehand."""
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
    """The scale of one leaf."""
    return entry.scale / math.sqrt(role.fan_in(leaf.shape)) if isinstance(entry, FanIn) else entry


def draw(law: Distribution, key: Key, like: PyTree) -> PyTree:
    """A tree of independent draws of one law."""
    drawn = unravel(like, law.sample(key, (size(like),)))
    return jax.tree.map(lambda leaf, one: one.astype(leaf.dtype), like, drawn)


def total(terms: PyTree) -> Scalar:
    """The sum of a tree of numbers."""
    return sum(jax.tree.leaves(terms), start=jnp.zeros(()))


class Independent(AbstractPrior):
    r"""Independent weights :math:`w = s \, r` with *r* of one law, in non-centred coordinates where *s* is unknown.

    A new prior of this kind is a class with a field `scale` and a method `law`.
    """

    scale: eqx.AbstractVar[Any]

    @abc.abstractmethod
    def law(self) -> Distribution:
        """Of a weight of scale 1."""

    def log_law(self, r: Array) -> Scalar:
        """Log density of an array of weights of scale 1; a subclass may have a quicker form."""
        return jnp.sum(self.law().log_prob(r))

    def bind(self, weights: PyTree, layout: PyTree) -> Self:
        """Itself, where the scales fit the layers."""
        check_scale(self.scale, layout)
        return self

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """The weights: raw, times the scale where it is unknown."""
        return jax.tree.map(jnp.multiply, raw, self._deviations(raw, scales, layout)) if scales else raw

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """The inverse of `weights`."""
        return jax.tree.map(jnp.divide, weights, self._deviations(weights, scales, layout)) if scales else weights

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of w = s r, or of r where s is unknown."""
        if scales:
            return self.log_law(ravel(raw))
        found = self._deviations(raw, scales, layout)
        logs = jax.tree.map(lambda w, s: jnp.sum(jnp.log(s)) * (w.size // jnp.size(s)), raw, found)
        return self.log_law(ravel(jax.tree.map(jnp.divide, raw, found))) - total(logs)

    def em_variance(self, r: Array) -> Array:
        r"""The variance :math:`1 / E[\tau^{-2} \mid r] = -r / \frac{d}{dr} \log p(r)` of weights of scale 1.

        For a law that is a normal :math:`N(0, \tau^2)` mixed over :math:`\tau`. Level around 0, where it is 0 / 0.
        """
        away = jnp.maximum(jnp.abs(r), float(jnp.finfo(r.dtype).eps) ** (1 / 3))
        return -away / jax.grad(self.log_law)(away)

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """The scale squared, times the variance of a weight of scale 1."""

        def one(leaf: Array, s: Any) -> Array:
            return jnp.broadcast_to(jnp.square(s), leaf.shape) * self.em_variance(leaf if scales else leaf / s)

        return jax.tree.map(one, raw, self._deviations(raw, scales, layout))

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log p(scales), on the real line with the Jacobian."""
        return transforms.log_prob(self.scale, scales, jacobian=jacobian)

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """A draw of (raw, scales)."""
        key_scales, key_weights = jax.random.split(key)
        scales = transforms.sample(self.scale, key_scales)
        raw = draw(self.law(), key_weights, like)
        return (raw if scales else jax.tree.map(jnp.multiply, raw, self._deviations(like, (), layout))), scales

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """Unknown scales at the medians of their priors."""
        return transforms.median(self.scale)

    def values(self, scales: PyTree) -> PyTree:
        """The unknown scales themselves."""
        return transforms.natural(self.scale, scales)

    def _deviations(self, like: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        return deviations(transforms.values(self.scale, scales), like, layout)


NORMAL = dist.Normal(0.0, 1.0, validate_args=False)
"""The law of raw coordinates that are non-centred. (Weights are finite, or the step is known to have failed.)"""
