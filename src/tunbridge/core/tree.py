"""Pytrees: as vectors, as named paths, as bytes, strongly typed."""

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.types import PyTree

_REMEMBERED = 64
"""How many answers `by_shape` keeps."""


def strong(tree: PyTree) -> PyTree:
    """Numbers as strongly typed arrays, so that `1`, `1.0` and a new value share one compiled program.

    Python's int and float become arrays of the default precision; arrays lose a weak type.
    """

    def one(leaf):
        if isinstance(leaf, bool | int | float):
            return np.asarray(leaf, jax.dtypes.canonicalize_dtype(type(leaf)))
        if getattr(leaf, "weak_type", False):
            return jax.lax.convert_element_type(leaf, leaf.dtype)
        return leaf

    return jax.tree.map(one, tree)


def size(tree: PyTree) -> int:
    """How many numbers a tree holds."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))


def num_bytes(tree: PyTree) -> int:
    """How many bytes a tree of arrays (or of their shapes) takes."""
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def paths(tree: PyTree) -> list[str]:
    """The name of each leaf, as in ``layers/0/weight``."""
    return [path for path, _ in flatten_with_paths(tree)]


def flatten_with_paths(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[str, PyTree]]:
    """(name, leaf) in the order of `jax.tree.leaves`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


def by_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called once for each structure, shapes and dtypes of its arguments and each default precision.

    It depends on these alone.
    """
    found: OrderedDict[Any, Any] = OrderedDict()

    @functools.wraps(function)
    def remembering(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        config: Any = jax.config
        name = (
            config.jax_enable_x64,
            structure,
            tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves),
        )
        if name not in found:
            found[name] = function(*arguments)
            if len(found) > _REMEMBERED:
                found.popitem(last=False)
        return found[name]

    return remembering


def ravel(tree: PyTree) -> Array:
    """All numbers of a tree in one vector."""
    leaves = jax.tree.leaves(tree)
    return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves]) if leaves else jnp.zeros(0)


def stack(trees: list[PyTree]) -> PyTree:
    """Trees of one structure as one tree with a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def on_host(function: Callable[..., Any], *arrays: Any) -> Any:
    """A NumPy function of arrays, computed on the host: no program is compiled for their shapes.

    What is computed of arrays of a device goes back to it; NumPy's arrays stay as they are, in their precision.
    """
    value = function(*(np.asarray(array) for array in arrays))
    return jax.device_put(value) if any(isinstance(array, Array) for array in arrays) else value


def all_finite(tree: PyTree) -> bool:
    """Whether every number of a tree is finite; on the host."""
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def unravel(like: PyTree, vector: Any) -> PyTree:
    """The inverse of `ravel`: the last axis of `vector` as a tree of the shapes of `like`, other axes leading."""
    leaves, treedef = jax.tree.flatten(like)
    ends = np.cumsum([int(np.prod(leaf.shape)) for leaf in leaves])
    parts = [vector[..., end - int(np.prod(leaf.shape)) : end] for end, leaf in zip(ends, leaves, strict=True)]
    shaped = [part.reshape((*vector.shape[:-1], *leaf.shape)) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(treedef, shaped)
