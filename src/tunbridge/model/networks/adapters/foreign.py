"""Helpers of the adapters: imports of optional frameworks, and weights named by their paths."""

import importlib
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax

from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.model.networks.layout import Leaf, Leaves


def framework(name: str, module: str | None = None) -> types.ModuleType:
    """Import a framework, or a module of it; InputError with the command that installs it if it is missing."""
    try:
        return importlib.import_module(module or name)
    except ImportError as error:
        raise InputError(
            f"the package {name}, which from_{name} needs",
            f"none that can be imported ({error})",
            f'Run pip install "tunbridge[{name}]".',
        ) from error


def nested(flat: Mapping[tuple, Any]) -> PyTree:
    """Nested dictionaries, from values by path."""
    tree: dict = {}
    for path, value in flat.items():
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = value
    return tree


def flattened(tree: PyTree) -> dict[tuple, Any]:
    """Values by path: the inverse of `nested`."""
    return {tuple(entry.key for entry in path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def described(weights: PyTree, describe: Callable[[tuple, int], Leaf]) -> Leaves:
    """Layout of weights in nested dictionaries, from each one's path and number of axes.

    A `Leaf` that names more or fewer axes than there are (a layer lifted over a stack of layers) becomes "unknown".
    """

    def role_of(path: tuple, leaf: Any) -> Leaf:
        role = describe(tuple(entry.key for entry in path), leaf.ndim)
        axes = sorted(role.inputs + role.outputs + role.shared)
        return role if axes == list(range(leaf.ndim)) else Leaf("unknown")

    return Leaves.of(jax.tree_util.tree_map_with_path(role_of, weights))
