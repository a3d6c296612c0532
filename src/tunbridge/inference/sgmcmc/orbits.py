"""Orbits: what scaling the units of a layer makes of a network's weights, and whether the function stays the same."""

import functools
import math
from collections.abc import Sequence
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

    def units(self, leaves: list[Array], *, divided: bool) -> "Units":
        """Of the numbers of each unit that are divided, or of those that are multiplied."""
        own = [(part, leaves[part.number]) for part in self.parts if part.divided == divided]
        if not own:
            return Units(np.zeros(0), jnp.zeros(0))
        sums = functools.reduce(jnp.add, [jnp.sum(leaf, axis=part.within(leaf)) for part, leaf in own])
        num = sum(math.prod(leaf.shape[axis] for axis in part.within(leaf)) for part, leaf in own)
        return Units(np.full(sums.size, num), jnp.ravel(sums))

    def shape(self, leaves: list[Array]) -> tuple[int, ...]:
        """How many units there are along each of the axes that run over them."""
        return self.parts[0].units(leaves[self.parts[0].number])


class Units(NamedTuple):
    """How many numbers each unit has, and what they add up to, (units,) each."""

    num: np.ndarray
    sums: Array


class Batch(NamedTuple):
    """Orbits without an array in common, whose units can be drawn at once."""

    orbits: tuple[Orbit, ...]

    def units(self, leaves: list[Array], *, divided: bool) -> Units:
        """Those of all orbits, one after another."""
        each = [one.units(leaves, divided=divided) for one in self.orbits]
        return Units(np.concatenate([one.num for one in each]), jnp.concatenate([one.sums for one in each]))

    def act(self, leaves: list[Array], factors: Array) -> list[Array]:
        """The leaves with the factors of all units in place."""
        shapes = [one.shape(leaves) for one in self.orbits]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        for one, shape, factor in zip(self.orbits, shapes, jnp.split(factors, ends), strict=True):
            leaves = one.act(leaves, factor.reshape(shape))
        return leaves


def batches(orbits: Sequence[Orbit]) -> list[Batch]:
    """The orbits in as few batches as putting each into the first that takes it makes."""
    found: list[list[Orbit]] = []
    for one in orbits:
        own = {part.number for part in one.parts}
        free = (batch for batch in found if not any(part.number in own for other in batch for part in other.parts))
        batch = next(free, None)
        if batch is None:
            found.append([one])
        else:
            batch.append(one)
    return [Batch(tuple(batch)) for batch in found]


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


def violation(model: Model, orbits: Sequence[Orbit], tolerance: float) -> tuple[str, float] | None:
    """The path of the orbit along which outputs change the most, and by how much relative to the largest output.

    None if, with all orbits at once, they change by less than the tolerance. Units are halved or doubled at random,
    which is exact in any precision, at weights from the prior, its own unknowns at their medians.
    """
    typical = jax.jit(lambda keys: jax.lax.map(lambda key: _typical(key, model), keys))
    draws = typical(jax.random.split(jax.random.key(0), _DRAWS))
    leaves = [leaf[0] for leaf in jax.tree.leaves(draws.weights)]
    rng = np.random.default_rng(0)
    x = jnp.asarray(_rows(rng, model))
    turned = [rng.choice([0.5, 2.0], one.shape(leaves)).astype(leaves[0].dtype) for one in orbits]
    still = [np.ones_like(factor) for factor in turned]

    @jax.jit
    def outputs(factors: list[Array]) -> Array:
        return jax.lax.map(lambda params: model.outputs(_scaled(params, orbits, factors), x), draws)

    before = outputs(still)

    def change(factors: list[np.ndarray]) -> float:
        return float(jnp.max(jnp.abs(outputs(factors) - before)) / jnp.max(jnp.abs(before)))

    if change(turned) <= tolerance:
        return None
    alone = [change([*still[:i], turned[i], *still[i + 1 :]]) for i in range(len(orbits))]
    worst = int(np.argmax(alone))
    return orbits[worst].path, alone[worst]


def _typical(key: Key, model: Model) -> Params:
    params = model.sample_params(key, model.example())
    scales = model.prior.median_scales(params.weights, model.network.layout(params.weights))
    return params._replace(scales=scales)


def _scaled(params: Params, orbits: Sequence[Orbit], factors: list[Array]) -> Params:
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
