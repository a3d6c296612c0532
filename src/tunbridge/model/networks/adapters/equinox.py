"""A network from an Equinox module of standard layers."""

from collections.abc import Callable

import equinox as eqx
import jax
from equinox import nn
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks.layout import Leaf, redraw

_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_CELLS = (nn.LSTMCell, nn.GRUCell)
_KNOWN = (nn.Linear, nn.Conv, nn.Embedding, *_NORMS, *_CELLS)
_STATEFUL = (nn.BatchNorm, nn.SpectralNorm, nn.StateIndex)


class Equinox(Module):
    """A network made from an Equinox module: see `from_equinox`."""

    weights: PyTree
    """The module's own weights: ``fit(..., init=tb.Params(network.weights))`` starts from there."""
    constants: PyTree
    static: PyTree = eqx.field(static=True)

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights: weights and embeddings redrawn from N(0, 1/fan-in), the rest as in the module."""
        return redraw(key, self.weights, self.layout(self.weights))

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs of the module, mapped over the points."""
        module = eqx.combine(weights, self.constants, self.static)
        return jax.vmap(module)(x)

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of each layer's weights: Equinox stores (out, in)."""
        module = eqx.combine(weights, self.constants, self.static)
        return jax.tree.map(_layer_layout, module, is_leaf=_is_layer)

    def with_outputs(self, num: int) -> "Equinox":
        """Return self: the module fixes the number of outputs."""
        return self


def from_equinox(module: Callable) -> Equinox:
    """A network from an Equinox module that maps one example to a vector of outputs.

    Its floating-point arrays are the weights. Dropout is off. A layer with mutable state (BatchNorm) is refused.

    Examples
    --------
    >>> import equinox as eqx, jax
    >>> network = from_equinox(eqx.nn.MLP(13, 1, 50, 2, key=jax.random.key(0)))
    """
    if not isinstance(module, eqx.Module):
        raise InputError("an equinox.Module", type(module).__name__, "Use from_functions for other callables.")
    layers = flatten_with_paths(module, is_leaf=lambda node: isinstance(node, _STATEFUL))
    stateful = [f"{path} ({type(layer).__name__})" for path, layer in layers if isinstance(layer, _STATEFUL)]
    if stateful:
        raise InputError(
            "a module without mutable state",
            f"state in {', '.join(stateful)}",
            "Use LayerNorm or GroupNorm, or fold the running statistics into the weights.",
        )
    module = nn.inference_mode(module)
    weights, rest = eqx.partition(module, eqx.is_inexact_array)
    constants, static = eqx.partition(rest, eqx.is_array)
    return Equinox(weights, constants, static)


def _is_layer(node: PyTree) -> bool:
    return isinstance(node, _KNOWN)


def _layer_layout(node: PyTree) -> PyTree:
    """The layer with a `Leaf` in place of each weight, and None elsewhere."""

    def describe(path: tuple, leaf: PyTree) -> Leaf | None:
        if not eqx.is_inexact_array(leaf) and not isinstance(leaf, jax.ShapeDtypeStruct):
            return None
        return _leaf(node, path[-1].name if path else "", leaf.ndim)

    return jax.tree_util.tree_map_with_path(describe, node)


def _leaf(layer: PyTree, name: str, ndim: int) -> Leaf:
    if isinstance(layer, _NORMS):
        return Leaf("norm", outputs=tuple(range(ndim)))
    if isinstance(layer, nn.Embedding):
        return Leaf("embedding", inputs=(0,), outputs=(1,))
    if isinstance(layer, _KNOWN):
        if name.startswith("bias"):
            return Leaf("bias", outputs=(0,))
        return Leaf("weight", inputs=(1,), outputs=(0,), shared=tuple(range(2, ndim)))
    return Leaf("unknown")
