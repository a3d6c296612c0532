"""A network from a Flax module, Linen or NNX."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import check_x
from tunbridge.core.declared import Module, shown
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks.adapters.foreign import described, framework
from tunbridge.model.networks.layout import Leaf, Leaves, kernel_of, redraw

_EVALUATION = {
    "train": False,
    "training": False,
    "is_training": False,
    "deterministic": True,
    "use_running_average": True,
}
_DENSE = ("Dense", "DenseParams", "Linear")
_GENERAL = ("DenseGeneral", "LinearGeneral")
_NORMS = ("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm")
_KNOWN = (*_DENSE, *_GENERAL, *_NORMS, "Conv", "ConvTranspose", "Einsum", "Embed")


@dataclasses.dataclass(frozen=True, eq=False)
class _Held:
    """Holds a module, hashable or not, as a static field: equal only to itself."""

    module: Any


class Linen(Module):
    """A network made from a Flax Linen module: see `from_flax`."""

    weights: PyTree
    """The collection "params": ``fit(..., init=tb.Params(network.weights))`` starts from there."""
    constants: PyTree
    leaves: Leaves
    held: _Held = eqx.field(static=True)
    flags: tuple[tuple[str, bool], ...] = eqx.field(static=True)

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights from the module's own initialisers."""
        return _drawn(self.held.module, key, x, self.flags).get("params", {})

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs of the module in evaluation mode, with its other collections unchanged."""
        with jax.numpy_rank_promotion("allow"):
            return self.held.module.apply({"params": weights, **self.constants}, x, **dict(self.flags))

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of each layer's weights: Flax stores (in, out), and a convolution's window before them."""
        return self.leaves.tree

    def with_outputs(self, num: int) -> "Linen":
        """Return self: the module fixes the number of outputs."""
        return self


class NNX(Module):
    """A network made from a Flax NNX module: see `from_flax`."""

    weights: PyTree
    """The module's own nnx.Param: ``fit(..., init=tb.Params(network.weights))`` starts from there."""
    constants: PyTree
    leaves: Leaves
    graph: Any = eqx.field(static=True)
    flags: tuple[tuple[str, bool], ...] = eqx.field(static=True)

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights: weights and embeddings redrawn from N(0, 1/fan-in), the rest as in the module."""
        return redraw(key, self.weights, self.layout(self.weights))

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs of the module in evaluation mode, with its other variables unchanged."""
        nnx = framework("flax", "flax.nnx")
        with jax.numpy_rank_promotion("allow"):
            return nnx.merge(self.graph, weights, self.constants)(x, **dict(self.flags))

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of each layer's weights: Flax stores (in, out), and a convolution's window before them."""
        return self.leaves.tree

    def with_outputs(self, num: int) -> "NNX":
        """Return self: the module fixes the number of outputs."""
        return self


def from_flax(module: Any, x: Any = None, *, variables: PyTree | None = None) -> Linen | NNX:
    """A network from a Flax module that maps (points, ...features) to (points, outputs).

    It runs in evaluation mode: dropout is off, and everything but the parameters (running statistics, constants) stays
    fixed. This mode is set by whichever of ``train=False``, ``training=False``, ``is_training=False``,
    ``deterministic=True`` and ``use_running_average=True`` the module's call takes; for an NNX module also by
    ``eval()`` on a copy.

    Parameters
    ----------
    module
        A ``flax.linen.Module`` or a ``flax.nnx.Module``.
    x
        Example inputs of at least one point. Linen modules need them to determine their layers; NNX modules take none.
    variables
        A Linen module's variables, as its ``init`` returns them; None draws them with ``jax.random.key(0)``.

    Examples
    --------
    >>> import flax.linen as nn, jax.numpy as jnp
    >>> module = nn.Sequential([nn.Dense(50), nn.tanh, nn.Dense(1)])
    >>> network = from_flax(module, jnp.zeros((1, 13)))
    >>> network.weights["layers_0"]["kernel"].shape
    (13, 50)
    """
    linen, nnx = framework("flax", "flax.linen"), framework("flax", "flax.nnx")
    if isinstance(module, linen.Module):
        return _from_linen(module, x, variables)
    if not isinstance(module, nnx.Module):
        raise InputError(
            "a flax.linen.Module or a flax.nnx.Module",
            type(module).__name__,
            "Pass the module itself, not its class or its variables.",
        )
    if x is not None or variables is not None:
        raise InputError("an NNX module alone", "x= or variables= too", "Write from_flax(module): it holds its own.")
    return _from_nnx(module)


def _from_linen(module: Any, x: Any, variables: PyTree | None) -> Linen:
    if x is None:
        raise InputError("example inputs with a Linen module", "none", "Write from_flax(module, x[:1]).")
    if variables is not None and not isinstance(variables, Mapping):
        raise InputError("variables= as what init returns", shown(variables), "Leave variables= out to draw them.")
    x, flags = jnp.asarray(check_x(x)), _flags(module)
    layers: dict[tuple, Any] = {}
    try:
        if variables is None:
            variables = jax.jit(lambda key: _drawn(module, key, x, flags))(jax.random.key(0))
        constants = jax.tree.map(jnp.asarray, _unboxed(variables))
        weights = constants.pop("params", {})
        network = Linen(weights, constants, Leaves.of(()), _Held(module), flags)
        with framework("flax", "flax.linen").intercept_methods(_recording(layers)):
            jax.eval_shape(network.apply, weights, x)
    except (framework("flax", "flax.errors").FlaxError, TypeError, ValueError) as error:
        raise InputError(
            "a Linen module that runs on this x in evaluation mode, without random numbers or mutable collections",
            str(error).split("\n")[0],
            f"Let its call take one of {', '.join(_EVALUATION)}, and give variables that fit it.",
        ) from error
    return dataclasses.replace(network, leaves=_layout(weights, layers))


def _from_nnx(module: Any) -> NNX:
    nnx = framework("flax", "flax.nnx")
    module = nnx.clone(module)
    module.eval()
    graph, weights, constants = nnx.split(module, nnx.Param, ...)
    weights = nnx.to_pure_dict(weights)
    nodes = {path: node for path, node in nnx.iter_graph(module) if isinstance(node, nnx.Module)}
    return NNX(weights, nnx.to_pure_dict(constants), _layout(weights, nodes), graph, _flags(module))


def _flags(module: Any) -> tuple[tuple[str, bool], ...]:
    """Entries of `_EVALUATION` that a module's call takes and that no field of the same name already sets."""
    taken = inspect.signature(type(module).__call__).parameters
    settled = {name for name in _EVALUATION if isinstance(getattr(module, name, None), bool)}
    return tuple((name, value) for name, value in _EVALUATION.items() if name in taken and name not in settled)


def _unboxed(variables: PyTree) -> PyTree:
    """Plain arrays in plain dictionaries, without the axis names that some modules attach."""
    core = framework("flax", "flax.core")
    return core.unfreeze(core.meta.unbox(variables))


def _drawn(module: Any, key: Key, x: Array, flags: tuple[tuple[str, bool], ...]) -> PyTree:
    with jax.numpy_rank_promotion("allow"):
        return _unboxed(module.init(key, x[:1], **dict(flags)))


def _recording(layers: dict[tuple, Any]) -> Any:
    """An interceptor that records the layer at each path when it is first called."""

    def intercept(call: Any, args: tuple, kwargs: dict, context: Any) -> Any:
        if context.method_name == "__call__":
            layers.setdefault(context.module.path, context.module)
        return call(*args, **kwargs)

    return intercept


def _layout(weights: PyTree, layers: dict[tuple, Any]) -> Leaves:
    return described(weights, lambda path, ndim: _leaf(layers.get(path[:-1]), path[-1], ndim))


def _leaf(layer: Any, name: str, ndim: int) -> Leaf:
    """Axes of a parameter of one of Flax's own layers; "unknown" for subclasses, which may use them differently."""
    kind, source = type(layer).__name__, type(layer).__module__
    if not source.startswith("flax.") or kind not in _KNOWN:
        return Leaf("unknown")
    every = tuple(range(ndim))
    if kind in _NORMS:
        return Leaf("norm", outputs=every)
    if name == "bias":
        return Leaf("bias", outputs=every)
    if kind == "Embed":
        return Leaf("embedding", inputs=(0,), outputs=(1,))
    return _kernel(layer, kind) if name == "kernel" else Leaf("unknown")


def _kernel(layer: Any, kind: str) -> Leaf:
    if kind in _DENSE:
        return Leaf("weight", inputs=(0,), outputs=(1,))
    if kind == "Einsum":
        return kernel_of(layer.einsum_str)
    if kind in _GENERAL:
        return _general(layer, kind)
    window = tuple(range(_count(layer.kernel_size)))
    first, second = len(window), len(window) + 1
    if kind == "ConvTranspose" and layer.transpose_kernel:
        first, second = second, first
    return Leaf("weight", inputs=(first,), outputs=(second,), shared=window)


def _general(layer: Any, kind: str) -> Leaf:
    """Axes of a general dense kernel: batch axes, which have their own weights, then summed axes, then features."""
    linen = kind == "DenseGeneral"
    batch = _count(layer.batch_dims) if linen else len(layer.batch_axis)
    summed = batch + _count(layer.axis)
    features = _count(layer.features if linen else layer.out_features)
    outputs = (*range(batch), *range(summed, summed + features))
    return Leaf("weight", inputs=tuple(range(batch, summed)), outputs=outputs)


def _count(axes: Any) -> int:
    return 1 if isinstance(axes, int) else len(axes)
