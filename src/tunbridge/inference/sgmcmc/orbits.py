"""Orbits: the weights of a network under scaling of a layer's units, and whether the function stays the same."""

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
"""Number of weight draws, and of inputs for each, at which functions are compared."""


class Part(NamedTuple):
    """An array of weights, those of its axes that run over units, and whether it is divided or multiplied."""

    number: int
    """Its index among the leaves."""
    axes: tuple[int, ...]
    divided: bool

    def within(self, leaf: Array) -> tuple[int, ...]:
        """Axes that run over the weights of one unit."""
        return tuple(axis for axis in range(len(leaf.shape)) if axis not in self.axes)

    def units(self, leaf: Array) -> tuple[int, ...]:
        """Number of units along each axis that runs over them."""
        return tuple(leaf.shape[axis] for axis in self.axes)


class Orbit(NamedTuple):
    """The arrays on which one factor per unit acts."""

    path: str
    """Path of the weights that enter the units."""
    parts: tuple[Part, ...]

    def act(self, leaves: list[Array], factor: Array) -> list[Array]:
        """Leaves with the weights of each unit multiplied, or divided, by its factor."""
        moved = list(leaves)
        for part in self.parts:
            leaf = leaves[part.number]
            expanded = jnp.expand_dims(factor, part.within(leaf))
            moved[part.number] = leaf / expanded if part.divided else leaf * expanded
        return moved

    def units(self, leaves: list[Array], *, divided: bool) -> "Units":
        """Count and sum of each unit's entries, over the arrays that are divided or over those that are multiplied."""
        matching = [(part, leaves[part.number]) for part in self.parts if part.divided == divided]
        if not matching:
            return Units(np.zeros(0), jnp.zeros(0))
        sums = functools.reduce(jnp.add, [jnp.sum(leaf, axis=part.within(leaf)) for part, leaf in matching])
        num = sum(math.prod(leaf.shape[axis] for axis in part.within(leaf)) for part, leaf in matching)
        return Units(np.full(sums.size, num), jnp.ravel(sums))

    def shape(self, leaves: list[Array]) -> tuple[int, ...]:
        """Number of units along each axis that runs over them."""
        return self.parts[0].units(leaves[self.parts[0].number])


class Units(NamedTuple):
    """Number of entries of each unit, and their sum, (units,) each."""

    num: np.ndarray
    sums: Array


class Batch(NamedTuple):
    """Orbits that share no array, so that their units can be drawn at once."""

    orbits: tuple[Orbit, ...]

    def units(self, leaves: list[Array], *, divided: bool) -> Units:
        """`Units` of all orbits, concatenated."""
        units = [each.units(leaves, divided=divided) for each in self.orbits]
        return Units(np.concatenate([each.num for each in units]), jnp.concatenate([each.sums for each in units]))

    def act(self, leaves: list[Array], factors: Array) -> list[Array]:
        """Leaves after the factors of all units have acted."""
        shapes = [orbit.shape(leaves) for orbit in self.orbits]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        for orbit, shape, factor in zip(self.orbits, shapes, jnp.split(factors, ends), strict=True):
            leaves = orbit.act(leaves, factor.reshape(shape))
        return leaves


def batches(orbits: Sequence[Orbit]) -> list[Batch]:
    """The orbits in batches: each joins the first batch with which it shares no array."""
    groups: list[list[Orbit]] = []
    for orbit in orbits:
        numbers = {part.number for part in orbit.parts}
        free = (batch for batch in groups if not any(part.number in numbers for other in batch for part in other.parts))
        batch = next(free, None)
        if batch is None:
            groups.append([orbit])
        else:
            batch.append(orbit)
    return [Batch(tuple(batch)) for batch in groups]


def orbit(weights: PyTree, layout: PyTree, entering: str, bias: str | None, leaving: str | None = None) -> Orbit:
    """Orbit of a layer's units: weights that enter them are multiplied, those that leave them (where named) divided.

    Axes are taken from the layout; InputError if a path does not exist, or units of different arrays do not match.
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
            raise InputError(
                f"a layout that identifies the units of {path}", f"{role}", "Give layout= to from_functions."
            )
        parts.append(Part(number, tuple(sorted(axes)), divided=path == leaving))
    units = [part.units(known[path][1]) for path, part in zip(named, parts, strict=True)]
    if len(set(units)) > 1:
        got = ", ".join(f"{path} with {num}" for path, num in zip(named, units, strict=True))
        raise InputError("arrays with the same units", got, "Name the arrays of one layer.")
    return Orbit(entering, tuple(parts))


def violation(model: Model, orbits: Sequence[Orbit], tolerance: float) -> tuple[str, float] | None:
    """Path of the orbit along which outputs change the most, and that change relative to the largest output.

    None if outputs change by no more than the tolerance when all orbits are scaled at once. Units are halved or doubled
    at random, which is exact in any precision, at weights drawn from the prior with its hyperparameters at their
    medians.
    """
    typical = jax.jit(lambda keys: jax.lax.map(lambda key: _typical(key, model), keys))
    draws = typical(jax.random.split(jax.random.key(0), _DRAWS))
    leaves = [leaf[0] for leaf in jax.tree.leaves(draws.weights)]
    rng = np.random.default_rng(0)
    x = jnp.asarray(_rows(rng, model))
    trial = [rng.choice([0.5, 2.0], orbit.shape(leaves)).astype(leaves[0].dtype) for orbit in orbits]
    identity = [np.ones_like(factor) for factor in trial]

    @jax.jit
    def outputs(factors: list[Array]) -> Array:
        return jax.lax.map(lambda params: model.outputs(_scaled(params, orbits, factors), x), draws)

    before = outputs(identity)

    def change(factors: list[np.ndarray]) -> float:
        return float(jnp.max(jnp.abs(outputs(factors) - before)) / jnp.max(jnp.abs(before)))

    if change(trial) <= tolerance:
        return None
    changes = [change([*identity[:i], trial[i], *identity[i + 1 :]]) for i in range(len(orbits))]
    worst = int(np.argmax(changes))
    return orbits[worst].path, changes[worst]


def _typical(key: Key, model: Model) -> Params:
    params = model.sample_params(key, model.example())
    scales = model.prior.median_scales(params.weights, model.network.layout(params.weights))
    return params._replace(scales=scales)


def _scaled(params: Params, orbits: Sequence[Orbit], factors: list[Array]) -> Params:
    leaves, structure = jax.tree.flatten(params.weights)
    for orbit, factor in zip(orbits, factors, strict=True):
        leaves = orbit.act(leaves, factor)
    return params._replace(weights=jax.tree.unflatten(structure, leaves))


def _rows(rng: np.random.Generator, model: Model) -> np.ndarray:
    """Inputs that any network accepts: positive values, or the first two tokens of a vocabulary."""
    row = model.example()
    shape = (_ROWS, *row.shape[1:])
    if np.issubdtype(row.dtype, np.integer):
        return rng.integers(0, 2, shape, row.dtype)
    return rng.uniform(0.1, 2.0, shape).astype(row.dtype)
