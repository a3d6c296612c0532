"""What the axes of a weight mean: read by fan-in scales, group priors, dropout masks, Kronecker factors."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import Key, PyTree, Role


@dataclasses.dataclass(frozen=True)
class Leaf:
    """The axes and role of one array of weights.

    Parameters
    ----------
    role
        "weight", "bias", "norm", "embedding", or "unknown" where the network cannot tell.
    inputs, outputs
        Axes that run over input and output units.
    shared
        Axes of a window that slides over positions (a convolution's kernel).
    """

    role: Role
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()

    def fan_in(self, shape: tuple[int, ...]) -> int:
        """How many inputs a unit sums over; 1 for a bias, a norm and an embedding."""
        if self.role != "weight":
            return 1
        return math.prod(shape[axis] for axis in self.inputs + self.shared)


class Leaves(Module):
    """A pytree of `Leaf` that takes no part in tracing."""

    flat: tuple[Leaf, ...] = eqx.field(static=True)
    structure: jax.tree_util.PyTreeDef = eqx.field(static=True)

    @staticmethod
    def of(tree: PyTree) -> "Leaves":
        """The leaves of a tree, with its structure."""
        flat, structure = jax.tree.flatten(tree)
        return Leaves(tuple(flat), structure)

    @property
    def tree(self) -> PyTree:
        """The tree again."""
        return jax.tree.unflatten(self.structure, self.flat)


def kernel_of(equation: str) -> Leaf:
    """The kernel of an einsum ``inputs,kernel->outputs``: an axis that the outputs lack is summed over.

    Examples
    --------
    >>> kernel_of("btd,dhk->bthk")
    Leaf(role='weight', inputs=(0,), outputs=(1, 2), shared=())
    """
    operands, outputs = equation.replace(" ", "").split("->")
    kernel = operands.split(",")[1]
    summed = tuple(axis for axis, letter in enumerate(kernel) if letter not in outputs)
    kept = tuple(axis for axis, letter in enumerate(kernel) if letter in outputs)
    return Leaf("weight", inputs=summed, outputs=kept)


def require_known(layout: PyTree, needed_by: str) -> None:
    """InputError that names the leaves whose axes the network could not tell."""
    unknown = [path for path, leaf in flatten_with_paths(layout) if leaf.role == "unknown"]
    if unknown:
        raise InputError(
            f"a layout of every weight, which {needed_by} needs",
            f"none for {', '.join(unknown)}",
            "Give layout= to from_functions, or choose what needs none.",
        )


def layers(layout: PyTree) -> list[str]:
    """The layer of each leaf: its path without the last name, in the order of the leaves."""
    return [path.rpartition("/")[0] for path, _ in flatten_with_paths(layout)]


def redraw(key: Key, weights: PyTree, layout: PyTree) -> PyTree:
    """Weights and embeddings redrawn as N(0, 1/fan-in); biases, norms and the unknown stay as they are."""
    leaves, treedef = jax.tree.flatten(weights)
    keys = jax.random.split(key, max(len(leaves), 1))

    def one(key_leaf: Key, leaf: Array, known: Leaf) -> Array:
        if known.role not in ("weight", "embedding"):
            return leaf
        return jax.random.normal(key_leaf, leaf.shape, leaf.dtype) / math.sqrt(known.fan_in(leaf.shape))

    drawn = map(one, keys, leaves, jax.tree.leaves(layout))
    return jax.tree.unflatten(treedef, [jnp.asarray(leaf) for leaf in drawn])
