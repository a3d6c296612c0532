"""Pytree utilities: flattening to vectors, leaf names, sizes, strong types, computation on the host."""

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
"""Number of results that `by_shape` keeps."""


def strong(tree: PyTree) -> PyTree:
    """Return the tree with strongly typed arrays for numbers, so that other values reuse the compiled program.

    Python's bool, int and float become arrays of the default precision; weakly typed arrays become strongly typed.
    """

    def strong_leaf(leaf):
        if isinstance(leaf, bool | int | float):
            return np.asarray(leaf, jax.dtypes.canonicalize_dtype(type(leaf)))
        if getattr(leaf, "weak_type", False):
            return jax.lax.convert_element_type(leaf, leaf.dtype)
        return leaf

    return jax.tree.map(strong_leaf, tree)


def size(tree: PyTree) -> int:
    """Number of elements of all arrays of a tree."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))


def num_bytes(tree: PyTree) -> int:
    """Number of bytes of a tree of arrays (or of their shapes)."""
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def paths(tree: PyTree) -> list[str]:
    """Path of each leaf, such as ``layers/0/weight``."""
    return [path for path, _ in flatten_with_paths(tree)]


def flatten_with_paths(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[str, PyTree]]:
    """Pairs (path, leaf) in the order of `jax.tree.leaves`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


def by_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """Cache a function by the structure, shapes and dtypes of its arguments, and by the default precision.

    For functions whose results depend on nothing else.
    """
    results: OrderedDict[Any, Any] = OrderedDict()

    @functools.wraps(function)
    def cached(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        config: Any = jax.config
        signature = (
            config.jax_enable_x64,
            structure,
            tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves),
        )
        if signature not in results:
            results[signature] = function(*arguments)
            if len(results) > _REMEMBERED:
                results.popitem(last=False)
        return results[signature]

    return cached


def ravel(tree: PyTree) -> Array:
    """Flatten a tree of arrays into one vector."""
    leaves = jax.tree.leaves(tree)
    return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves]) if leaves else jnp.zeros(0)


def stack(trees: list[PyTree]) -> PyTree:
    """Stack trees of equal structure into one tree with a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def on_host(function: Callable[..., Any], *arrays: Any) -> Any:
    """Apply a NumPy function to arrays on the host, so that no program is compiled for their shapes.

    The result is put on the device if any argument is a JAX array; otherwise it stays a NumPy array in its precision.
    """
    value = function(*(np.asarray(array) for array in arrays))
    return jax.device_put(value) if any(isinstance(array, Array) for array in arrays) else value


def all_finite(tree: PyTree) -> bool:
    """Whether all inexact arrays of a tree are finite, evaluated on the host."""
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def unravel(like: PyTree, vector: Any) -> PyTree:
    """Inverse of `ravel`: a tree with the shapes of `like` from the last axis of `vector`; other axes stay leading."""
    leaves, treedef = jax.tree.flatten(like)
    ends = np.cumsum([int(np.prod(leaf.shape)) for leaf in leaves])
    parts = [vector[..., end - int(np.prod(leaf.shape)) : end] for end, leaf in zip(ends, leaves, strict=True)]
    shaped = [part.reshape((*vector.shape[:-1], *leaf.shape)) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(treedef, shaped)
