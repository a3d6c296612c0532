"""Orbits: what scaling the units of a layer makes of a network's weights, and whether the function stays the same."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.model.model import Model

_DRAWS, _ROWS = 8, 2
"""At how many weights, and how many inputs of each, functions are compared."""


class Part(NamedTuple):
    """An array of weights, the axes of it that run over units, and whether it is divided or multiplied."""

    number: int
    """Its place among the leaves."""
    axes: tuple[int, ...]
    divided: bool

    def within(self, leaf: Array) -> tuple[int, ...]:
        """The axes that run over the numbers of one unit."""
        return tuple(axis for axis in range(len(leaf.shape)) if axis not in self.axes)

    def units(self, leaf: Array) -> tuple[int, ...]:
        """How many units there are along each of the axes that run over them."""
        return tuple(leaf.shape[axis] for axis in self.axes)


class Orbit(NamedTuple):
    """The arrays that a factor a unit acts on."""

    path: str
    """Of the weights that enter the units."""
    parts: tuple[Part, ...]

    def act(self, leaves: list[Array], factor: Array) -> list[Array]:
        """The leaves with the numbers of each unit multiplied, or divided, by its factor."""
        moved = list(leaves)
        for part in self.parts:
            leaf = leaves[part.number]
            each = jnp.expand_dims(factor, part.within(leaf))
            moved[part.number] = leaf / each if part.divided else leaf * each
        return moved

    def sums(self, leaves: list[Array], *, divided: bool) -> Array:
        """Of the numbers of each unit that are divided, or of those that are multiplied."""
        own = [(part, leaves[part.number]) for part in self.parts if part.divided == divided]
        return functools.reduce(jnp.add, [jnp.sum(leaf, axis=part.within(leaf)) for part, leaf in own])

    def num(self, leaves: list[Array], *, divided: bool) -> int:
        """How many numbers of a unit these are."""
        own = [(part, leaves[part.number]) for part in self.parts if part.divided == divided]
        return sum(math.prod(leaf.shape[axis] for axis in part.within(leaf)) for part, leaf in own)


def orbit(weights: PyTree, layout: PyTree, entering: str, bias: str | None, leaving: str | None = None) -> Orbit:
    """The orbit of a layer's units: what enters them is multiplied, what leaves them (where it is named) divided.

    The axes are those of the layout; InputError if a path is not there, or units of different arrays do not match.
    """
    rows = zip(flatten_with_paths(weights), jax.tree.leaves(layout), strict=True)
    known = {path: (number, leaf, role) for number, ((path, leaf), role) in enumerate(rows)}
    named = [path for path in (entering, bias, leaving) if path is not None]
    parts = []
    for path in named:
        if path not in known:
            raise InputError(f"a path among {', '.join(known)}"[:300], repr(path), "Correct it.")
        number, _, role = known[path]
        axes = role.inputs if path == leaving else role.outputs
        if not axes:
            raise InputError(f"a layout that tells the units of {path}", f"{role}", "Give layout= to from_functions.")
        parts.append(Part(number, tuple(sorted(axes)), divided=path == leaving))
    units = [part.units(known[path][1]) for path, part in zip(named, parts, strict=True)]
    if len(set(units)) > 1:
        got = ", ".join(f"{path} with {num}" for path, num in zip(named, units, strict=True))
        raise InputError("arrays with the same units", got, "Name the arrays of one layer.")
    return Orbit(entering, tuple(parts))


def changes(model: Model, orbits: list[Orbit]) -> list[float]:
    """How much outputs change, relative to the largest, when the units of each orbit are halved or doubled at random.

    At weights from the prior, its own unknowns at their medians. Halves and doubles are exact in any precision.
    """
    typical = jax.jit(lambda keys: jax.lax.map(lambda key: _typical(key, model), keys))
    draws = typical(jax.random.split(jax.random.key(0), _DRAWS))
    leaves = jax.tree.leaves(draws.weights)
    rng = np.random.default_rng(0)
    x = jnp.asarray(_rows(rng, model))

    @jax.jit
    def outputs(factors: list[Array]) -> Array:
        return jax.lax.map(lambda params: model.outputs(_scaled(params, orbits, factors), x), draws)

    units = [first.units(leaves[first.number][0]) for first, *_ in (one.parts for one in orbits)]
    still = [np.ones(shape, leaves[0].dtype) for shape in units]
    turned = [rng.choice([0.5, 2.0], shape).astype(leaves[0].dtype) for shape in units]
    before = outputs(still)
    after = [outputs([*still[:i], turned[i], *still[i + 1 :]]) for i in range(len(orbits))]
    return [float(jnp.max(jnp.abs(one - before)) / jnp.max(jnp.abs(before))) for one in after]


def _typical(key: Key, model: Model) -> Params:
    params = model.sample_params(key, model.example())
    scales = model.prior.median_scales(params.weights, model.network.layout(params.weights))
    return params._replace(scales=scales)


def _scaled(params: Params, orbits: list[Orbit], factors: list[Array]) -> Params:
    leaves, structure = jax.tree.flatten(params.weights)
    for one, factor in zip(orbits, factors, strict=True):
        leaves = one.act(leaves, factor)
    return params._replace(weights=jax.tree.unflatten(structure, leaves))


def _rows(rng: np.random.Generator, model: Model) -> np.ndarray:
    """Inputs that any network takes: positive numbers, or the first two of a vocabulary."""
    row = model.example()
    shape = (_ROWS, *row.shape[1:])
    if np.issubdtype(row.dtype, np.integer):
        return rng.integers(0, 2, shape, row.dtype)
    return rng.uniform(0.1, 2.0, shape).astype(row.dtype)
