"""The layout of weights: what their axes mean, for fan-in scales, group priors, dropout masks, Kronecker factors."""

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
        """Number of inputs that a unit sums over; 1 for biases, norms and embeddings."""
        if self.role != "weight":
            return 1
        return math.prod(shape[axis] for axis in self.inputs + self.shared)


class Leaves(Module):
    """A pytree of `Leaf` held as static data, so that JAX does not trace it."""

    flat: tuple[Leaf, ...] = eqx.field(static=True)
    structure: jax.tree_util.PyTreeDef = eqx.field(static=True)

    @staticmethod
    def of(tree: PyTree) -> "Leaves":
        """Hold a pytree of `Leaf` as static data."""
        flat, structure = jax.tree.flatten(tree)
        return Leaves(tuple(flat), structure)

    @property
    def tree(self) -> PyTree:
        """The pytree of `Leaf`."""
        return jax.tree.unflatten(self.structure, self.flat)


def kernel_of(equation: str) -> Leaf:
    """Axes of the kernel of an einsum ``inputs,kernel->outputs``: those that the outputs lack are summed over.

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
    """Raise InputError naming the arrays of weights whose axes the network does not know, if there are any."""
    unknown = [path for path, leaf in flatten_with_paths(layout) if leaf.role == "unknown"]
    if unknown:
        raise InputError(
            f"a layout of every weight, which {needed_by} needs",
            f"none for {', '.join(unknown)}",
            "Give layout= to from_functions, or choose something that needs no layout.",
        )


def layers(layout: PyTree) -> list[str]:
    """Layer of each leaf, in the order of the leaves: its path without the last name."""
    return [path.rpartition("/")[0] for path, _ in flatten_with_paths(layout)]


def redraw(key: Key, weights: PyTree, layout: PyTree) -> PyTree:
    """Redraw weights and embeddings from N(0, 1/fan-in); biases, norms and arrays of unknown role stay unchanged."""
    leaves, treedef = jax.tree.flatten(weights)
    keys = jax.random.split(key, max(len(leaves), 1))

    def redrawn(key_leaf: Key, leaf: Array, role: Leaf) -> Array:
        if role.role not in ("weight", "embedding"):
            return leaf
        return jax.random.normal(key_leaf, leaf.shape, leaf.dtype) / math.sqrt(role.fan_in(leaf.shape))

    drawn = map(redrawn, keys, leaves, jax.tree.leaves(layout))
    return jax.tree.unflatten(treedef, [jnp.asarray(leaf) for leaf in drawn])
