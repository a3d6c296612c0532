"""A network from a pair of functions."""

from collections.abc import Callable

import equinox as eqx
import jax
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks.layout import Leaf, Leaves


class Functions(Module):
    """A network made from two functions: see `from_functions`."""

    make: Callable[[Key, Array], PyTree] = eqx.field(static=True)
    call: Callable[[PyTree, Array], Array] = eqx.field(static=True)
    leaves: Leaves | None

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights from the user's first function."""
        return self.make(key, x)

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs from the user's second function."""
        return self.call(weights, x)

    def layout(self, weights: PyTree) -> PyTree:
        """The user's layout; "unknown" for every leaf where none was given."""
        if self.leaves is None:
            return jax.tree.map(lambda _: Leaf("unknown"), weights)
        given, expected = (str(jax.tree.structure(tree)) for tree in (self.leaves.tree, weights))
        if given != expected:
            raise InputError(
                f"a layout of the weights' structure, {expected}",
                given,
                "Give one tb.networks.Leaf per array of weights.",
            )
        return self.leaves.tree

    def with_outputs(self, num: int) -> "Functions":
        """Return self: the function fixes the number of outputs."""
        return self


def from_functions(
    init: Callable[[Key, Array], PyTree],
    apply: Callable[[PyTree, Array], Array],
    layout: PyTree | None = None,
) -> Functions:
    """A network from two functions.

    Parameters
    ----------
    init
        ``init(key, x)`` returns a pytree of weights.
    apply
        ``apply(weights, x)`` returns outputs (points, outputs).
    layout
        A `Leaf` for each array of weights. Without it, whatever needs one (fan-in scales, dropout masks) is refused.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> line = from_functions(lambda key, x: {"slope": jnp.zeros(())}, lambda w, x: w["slope"] * x)
    >>> line.apply(line.init(jax.random.key(0), jnp.ones((3, 1))), jnp.ones((3, 1))).shape
    (3, 1)
    """
    if layout is None:
        return Functions(init, apply, None)
    if not all(isinstance(leaf, Leaf) for leaf in jax.tree.leaves(layout)):
        raise InputError("a pytree of tb.networks.Leaf", f"{layout}", "Give one Leaf per array of weights.")
    return Functions(init, apply, Leaves.of(layout))
