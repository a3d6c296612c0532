"""Independent normal weights: one scale, one a layer, scaled by fan-in, known or unknown."""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.networks import layout as axes


class FanIn(eqx.Module):
    """A scale to be divided by the square root of a weight's fan-in; see `fan_in`."""

    scale: Any


def fan_in(scale: Any = 1.0) -> FanIn:
    """The scale ``scale / sqrt(fan-in)``: sums over inputs keep their size whatever the width.

    The fan-in of a bias is 1.
    """
    return FanIn(transforms.check_positive(scale, "scale"))


class Normal(eqx.Module):
    r"""Independent weights :math:`w \sim N(0, s^2)`.

    An unknown scale makes the prior hierarchical and its coordinates non-centred,
    :math:`w = s \, r,\; r \sim N(0, 1)`, so that samplers meet no funnel :cite:p:`betancourt2015hierarchical`.

    Parameters
    ----------
    scale
        The standard deviation *s*: a number, a numpyro distribution if it is unknown, `fan_in` of either, or a
        sequence of these, one a layer in the network's order.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> one, wide, unknown = Normal(1.0), Normal(fan_in(1.0)), Normal(fan_in(dist.HalfNormal(1.0)))
    >>> by_layer = Normal((1.0, 0.5))
    """

    scale: Any

    def __init__(self, scale: Any = 1.0):
        if isinstance(scale, Sequence) and not isinstance(scale, str):
            scale = tuple(scale)
        self.scale = transforms.check_positive(scale, "scale")

    def check(self, weights: PyTree, layout: PyTree) -> None:
        """Refuse a fan-in without a layout, and a wrong number of layers."""
        entries = self.scale if isinstance(self.scale, tuple) else (self.scale,)
        for entry in entries:
            scale = entry.scale if isinstance(entry, FanIn) else entry
            shape = scale.shape() if isinstance(scale, dist.Distribution) else jnp.shape(scale)
            if shape != ():
                raise InputError("one number a scale", f"shape {shape}", "Write a tuple for one scale a layer.")
        if any(isinstance(entry, FanIn) for entry in entries):
            axes.require_known(layout, "priors.fan_in")
        if isinstance(self.scale, tuple):
            names = list(dict.fromkeys(axes.layers(layout)))
            if len(names) != len(self.scale):
                raise InputError(
                    f"one scale a layer, {len(names)} for {', '.join(names)}",
                    f"{len(self.scale)}",
                    "Match the network's layers, or give one scale for all.",
                )

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """The weights: raw, times the scale where it is unknown."""
        return jax.tree.map(jnp.multiply, raw, self._deviations(raw, scales, layout)) if scales else raw

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """The inverse of `weights`."""
        return jax.tree.map(jnp.divide, weights, self._deviations(weights, scales, layout)) if scales else weights

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log N(raw; 0, s^2), or log N(raw; 0, 1) where s is unknown."""
        deviations = jax.tree.map(lambda _: 1.0, raw) if scales else self._deviations(raw, scales, layout)
        terms = jax.tree.map(lambda r, s: jnp.sum(dist.Normal(0.0, s).log_prob(r)), raw, deviations)
        return sum(jax.tree.leaves(terms), start=jnp.zeros(()))

    def log_hyper(self, scales: PyTree) -> Scalar:
        """Log p(scales) on the real line."""
        return transforms.log_prob(self.scale, scales)

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """A draw of (raw, scales)."""
        key_scales, key_weights = jax.random.split(key)
        scales = transforms.sample(self.scale, key_scales)
        leaves, treedef = jax.tree.flatten(like)
        keys = jax.random.split(key_weights, max(len(leaves), 1))
        standard = [jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=False)]
        raw = jax.tree.unflatten(treedef, standard)
        if not scales:
            raw = jax.tree.map(jnp.multiply, raw, self._deviations(like, scales, layout))
        return raw, scales

    def median_scales(self) -> PyTree:
        """Unknown scales at the medians of their priors."""
        return transforms.median(self.scale)

    def _deviations(self, like: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """The standard deviation of each leaf."""
        known = transforms.values(self.scale, scales)
        leaves, treedef = jax.tree.flatten(like)
        roles = jax.tree.leaves(layout)
        if isinstance(known, tuple):
            names = axes.layers(layout)
            order = list(dict.fromkeys(names))
            entries = [known[order.index(name)] for name in names]
        else:
            entries = [known] * len(leaves)
        deviations = [_deviation(*row) for row in zip(entries, leaves, roles, strict=True)]
        return jax.tree.unflatten(treedef, deviations)


def _deviation(entry: Any, leaf: Array, role: axes.Leaf) -> Any:
    if isinstance(entry, FanIn):
        return entry.scale / math.sqrt(role.fan_in(leaf.shape))
    return entry
