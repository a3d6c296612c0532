r"""Dropout as a distribution over weights: :math:`W = M \,\text{diag}(z),\; z_j \sim \text{Bernoulli}(1 - p)`.

Dropping a unit and dropping the weights that read it are the same thing, so masks need only the layout of the weights
and work for any network :cite:p:`gal2016dropout`. Rates and masks are tuples with one entry per leaf of the weights,
None where nothing is dropped; a mask has one value per input unit.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import entr, logit

from tunbridge.core.random import split, uniform
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.model.model import Model, Target
from tunbridge.model.networks import layout as axes
from tunbridge.model.networks.programs.reading import reads_inputs

Rates = tuple[Any, ...]
Masks = tuple[Array | None, ...]
Draw = Callable[[Key, Rates, PyTree, PyTree], Masks]

_TEMPERATURE = 0.1
"""Temperature of the relaxed (concrete) masks with which rates are learned."""


def place(model: Model, weights: PyTree, rate: Any, input_rate: Any) -> Rates:
    """Return the dropout rate of each leaf's input units: `input_rate` if these are the inputs x, else `rate`.

    A leaf that reads both x and hidden units counts as reading hidden units.
    """
    layout = model.network.layout(weights)
    axes.require_known(layout, "dropout")
    first = jax.tree.leaves(reads_inputs(model.network, weights, model.example(), layout))
    rows = zip(jax.tree.leaves(layout), jax.tree.leaves(weights), first, strict=True)
    return tuple(None if not _reads_units(role, leaf) else input_rate if x else rate for role, leaf, x in rows)


def _reads_units(role: axes.Leaf, leaf: Any) -> bool:
    """Whether a leaf has an axis of input units; a depthwise convolution kernel has none."""
    return role.role == "weight" and not (role.shared and math.prod(leaf.shape[axis] for axis in role.inputs) == 1)


def draw(key: Key, rates: Rates, like: PyTree, layout: PyTree) -> Masks:
    """Draw masks of 0 and 1."""
    keys, shapes = _keys_and_shapes(key, like, layout)
    return tuple(
        None if p is None else (uniform(k, shape) >= p).astype(jnp.result_type(float))
        for k, p, shape in zip(keys, rates, shapes, strict=True)
    )


def draw_relaxed(key: Key, rates: Rates, like: PyTree, layout: PyTree) -> Masks:
    """Draw relaxed masks between 0 and 1, differentiable in the rates :cite:p:`gal2017concrete`."""
    keys, shapes = _keys_and_shapes(key, like, layout)

    def relaxed_mask(key_leaf: Key, rate: Any, shape: tuple[int, ...]) -> Array:
        u = jax.random.uniform(key_leaf, shape, minval=1e-6, maxval=1.0 - 1e-6)
        return jax.nn.sigmoid(-(logit(rate) + logit(u)) / _TEMPERATURE)

    return tuple(
        None if p is None else relaxed_mask(k, p, shape) for k, p, shape in zip(keys, rates, shapes, strict=True)
    )


def _keys_and_shapes(key: Key, like: PyTree, layout: PyTree) -> tuple[Key, list[tuple[int, ...]]]:
    leaves, roles = jax.tree.leaves(like), jax.tree.leaves(layout)
    return split(key, len(leaves)), [_units(*pair) for pair in zip(leaves, roles, strict=True)]


def _units(leaf: Any, role: axes.Leaf) -> tuple[int, ...]:
    """The shape of a mask: the number of input units along their axes, 1 along every other axis."""
    return tuple(length if axis in role.inputs else 1 for axis, length in enumerate(leaf.shape))


def apply(model: Model, params: Params, masks: Masks) -> Params:
    """Return the parameters with their weights multiplied by the masks."""
    layout = model.network.layout(params.weights)
    leaves, treedef = jax.tree.flatten(model.prior.weights(params.weights, params.scales, layout))
    masked = [w if z is None else w * z for w, z in zip(leaves, masks, strict=True)]
    return params._replace(weights=model.prior.raw(jax.tree.unflatten(treedef, masked), params.scales, layout))


def dropped(key: Key, model: Model, params: Params, rates: Rates, draw: Draw) -> Params:
    """Return the parameters with masks drawn by `draw` and applied."""
    drawn = draw(key, rates, params.weights, model.network.layout(params.weights))
    return apply(model, params, drawn)


def mean(model: Model, params: Params, rates: Rates) -> Params:
    """Return the parameters at the mean of their masks: each weight times the probability that its unit stays."""
    return apply(model, params, tuple(None if rate is None else jnp.asarray(1.0 - rate) for rate in rates))


def expected_log_prior(target: Target, params: Params, rates: Rates) -> Scalar:
    r"""Mean over masks of log p(masked weights), for a prior that is independent over input units.

    A unit stays with probability 1 - p, so a leaf contributes :math:`(1 - p) \log p(M) + p \log p(0)`. For a normal
    prior of scale 1/l that is :math:`-(1 - p)\, l^2 \lVert M \rVert^2 / 2` plus a constant.
    """
    leaves, treedef = jax.tree.flatten(params.weights)
    dropped = [i for i, rate in enumerate(rates) if rate is not None]

    def log_prior(kept: Array) -> Scalar:
        masked = list(leaves)
        for number, i in enumerate(dropped):
            masked[i] = jnp.where(kept[number] > 0, leaves[i], 0.0)
        return target.log_prior_weights(params._replace(weights=jax.tree.unflatten(treedef, masked)))

    num = len(dropped)
    each = jax.vmap(log_prior)(jnp.asarray(np.concatenate([np.ones((1, num)), 1.0 - np.eye(num)]), leaves[0].dtype))
    p = jnp.stack([jnp.asarray(rates[i], each.dtype) for i in dropped]) if dropped else jnp.zeros(0, each.dtype)
    return each[0] + jnp.sum(p * (each[1:] - each[0]))


def entropy(rates: Rates, like: PyTree, layout: PyTree) -> Scalar:
    """Joint entropy of all masks, in nats."""
    total = jnp.zeros(())
    for rate, leaf, role in zip(rates, jax.tree.leaves(like), jax.tree.leaves(layout), strict=True):
        if rate is not None:
            total += math.prod(_units(leaf, role)) * (entr(rate) + entr(1.0 - rate))
    return total
