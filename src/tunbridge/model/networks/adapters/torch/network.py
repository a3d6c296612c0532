"""A network from a PyTorch module of standard layers, which is read once and then runs in JAX."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks.adapters.foreign import described, flattened, framework, nested
from tunbridge.model.networks.adapters.torch.graph import Graph
from tunbridge.model.networks.adapters.torch.layers import leaf_of
from tunbridge.model.networks.adapters.torch.trace import Reader
from tunbridge.model.networks.layout import Leaf, Leaves, redraw


class Torch(Module):
    """A network made from a PyTorch module: see `from_torch`."""

    weights: PyTree
    """The module's own parameters: ``fit(..., init=tb.Params(network.weights))`` starts from there."""
    constants: PyTree
    leaves: Leaves
    graph: Graph = eqx.field(static=True)

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights: weights and embeddings redrawn from N(0, 1/fan-in), the rest as in the module."""
        return redraw(key, self.weights, self.layout(self.weights))

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs of the module's graph, in evaluation mode."""
        return self.graph.run({**flattened(self.constants), **flattened(weights)}, x)

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of each layer's weights: PyTorch stores (out, in), and a convolution's window after them."""
        return self.leaves.tree

    def with_outputs(self, num: int) -> "Torch":
        """Return self: the module fixes the number of outputs."""
        return self


def from_torch(module: Any) -> Torch:
    """A network from a PyTorch module that maps (points, ...features) to (points, outputs).

    Its graph is traced by torch.fx and its tensors are copied: PyTorch is not needed to fit, predict or unpickle.
    Weights keep PyTorch's names and (out, in) order, as in ``{"features": {"0": {"weight": ..., "bias": ...}}}``; tied
    weights are stored once. The module runs in evaluation mode: dropout is off; buffers (running statistics) and
    parameters with ``requires_grad=False`` stay fixed.

    Layers: Linear, Conv1d and 2d, BatchNorm1d and 2d, LayerNorm, GroupNorm, Embedding, dropout, activations, pooling,
    Flatten, LSTM, GRU, MultiheadAttention, TransformerEncoder and its layers. Between them: arithmetic, matmul, einsum,
    softmax, cat, reshape, permute, mean, indexing and their like, as functions and as methods. Whatever is not
    supported is named in the error.

    Parameters
    ----------
    module
        A ``torch.nn.Module`` whose ``forward`` takes one tensor and does not branch on its values.
    """
    nn = framework("torch", "torch.nn")
    if not isinstance(module, nn.Module):
        raise InputError("a torch.nn.Module", type(module).__name__, "Pass the module itself, not its state_dict.")
    reader = Reader(module)
    free = {reader.paths[id(p)]: p for p in reader.module.parameters() if p.requires_grad}
    weights = nested({path: _array(tensor) for path, tensor in free.items()})
    constants = nested({path: _array(tensor) for path, tensor in reader.used.items() if path not in free})
    kinds = {path: _kind(module) for path, module in reader.module.named_modules()}

    def describe(path: tuple, ndim: int) -> Leaf:
        return leaf_of(kinds[".".join(path[:-1])], path[-1], ndim)

    return Torch(weights, constants, described(weights, describe), reader.graph)


def _kind(module: Any) -> str:
    """Class name of one of PyTorch's own layers; "" for subclasses, whose parameters may have other axes."""
    return type(module).__name__ if type(module).__module__.startswith("torch.nn.modules.") else ""


def _array(tensor: Any) -> Array:
    """Copy of a tensor as a JAX array; bfloat16, which NumPy lacks, becomes float32."""
    tensor = tensor.detach().cpu()
    wide = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
    return jnp.array(wide.numpy())
