"""A network from a Keras model on the JAX backend."""

from typing import Any

import equinox as eqx
import jax
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks.adapters.foreign import described, flattened, framework, nested
from tunbridge.model.networks.layout import Leaf, Leaves, kernel_of, redraw

_NORMS = ("BatchNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization")
_CELLS = ("LSTMCell", "GRUCell", "SimpleRNNCell")
_WINDOWS = tuple(f"{kind}Conv{rank}D" for kind in ("", "Depthwise", "Separable") for rank in (1, 2, 3))
_TRANSPOSED = tuple(f"Conv{rank}DTranspose" for rank in (1, 2, 3))
_KNOWN = ("Dense", "EinsumDense", "Embedding", *_NORMS, *_CELLS, *_WINDOWS, *_TRANSPOSED)


class _Held:
    """Holds a model as a static field: equal only to itself; its configuration is part of a run's fingerprint."""

    __slots__ = ("__name__", "model")

    def __init__(self, model: Any):
        self.model, self.__name__ = model, _configuration(model)

    def __reduce__(self) -> tuple:
        return _Held, (self.model,)


class Keras(Module):
    """A network made from a Keras model: see `from_keras`."""

    weights: PyTree
    """The model's own trainable weights: ``fit(..., init=tb.Params(network.weights))`` starts from there."""
    constants: list[Array]
    leaves: Leaves
    held: _Held = eqx.field(static=True)
    paths: tuple[tuple[str, ...], ...] = eqx.field(static=True)

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights: weights and embeddings redrawn from N(0, 1/fan-in), the rest as in the model."""
        return redraw(key, self.weights, self.layout(self.weights))

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs of the model with ``training=False``."""
        by_path = flattened(weights)
        trainable = [by_path[path] for path in self.paths]
        with jax.numpy_rank_promotion("allow"):
            outputs, _ = self.held.model.stateless_call(trainable, self.constants, x, training=False)
        return outputs

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of each layer's weights: Keras stores (in, out), and a convolution's window before them."""
        return self.leaves.tree

    def with_outputs(self, num: int) -> "Keras":
        """Return self: the model fixes the number of outputs."""
        return self


def from_keras(model: Any) -> Keras:
    """A network from a built Keras 3 model that maps (points, ...features) to (points, outputs).

    Its trainable variables are the weights, named by their paths. It runs with ``training=False``: dropout is off, and
    everything that is not trainable (running statistics, layers with ``trainable=False``) stays fixed.

    Keras must run on JAX: set ``KERAS_BACKEND=jax`` before it is imported.

    Parameters
    ----------
    model
        A ``keras.Model`` that has been built.

    Examples
    --------
    >>> import keras
    >>> model = keras.Sequential([keras.Input((13,)), keras.layers.Dense(50, "tanh"), keras.layers.Dense(1)])
    >>> network = from_keras(model)
    """
    keras = framework("keras")
    if keras.backend.backend() != "jax":
        raise InputError(
            "Keras on the JAX backend",
            f"the backend {keras.backend.backend()}",
            "Set the environment variable KERAS_BACKEND=jax before keras is imported.",
        )
    if not isinstance(model, keras.Model):
        raise InputError("a keras.Model", type(model).__name__, "Put single layers into a keras.Sequential.")
    if not model.built:
        raise InputError("a built model", f"{model.name}, without weights", "Call it on an example first.")
    trainable = model.trainable_variables
    paths = tuple(tuple(variable.path.split("/")) for variable in trainable)
    _refuse_same_names(paths)
    weights = nested({path: variable.value for path, variable in zip(paths, trainable, strict=True)})
    constants = [variable.value for variable in model.non_trainable_variables]
    owners = _owners(model)
    layers = {path: owners[id(variable)] for path, variable in zip(paths, trainable, strict=True)}
    leaves = described(weights, lambda path, ndim: _leaf(layers[path], path[-1], ndim))
    return Keras(weights, constants, leaves, _Held(model), paths)


def _configuration(model: Any) -> str:
    try:
        return model.to_json()
    except (NotImplementedError, TypeError, ValueError):  # a user's class without a configuration
        return f"{type(model).__module__}.{type(model).__qualname__}"


def _refuse_same_names(paths: tuple[tuple[str, ...], ...]) -> None:
    same = sorted({"/".join(path) for path in paths if paths.count(path) > 1})
    if same:
        raise InputError("variables of different paths", f"several {', '.join(same)}", "Give each layer a name=.")


def _owners(model: Any) -> dict[int, Any]:
    """Innermost layer of each variable: outer layers come first in the list, and inner ones overwrite them."""
    layers = model._flatten_layers(include_self=False, recursive=True)
    return {id(variable): layer for layer in layers for variable in layer.trainable_variables}


def _leaf(layer: Any, name: str, ndim: int) -> Leaf:
    """Axes of a variable of one of Keras's own layers; "unknown" for subclasses, which may use them differently."""
    kind, source = type(layer).__name__, type(layer).__module__
    if not source.startswith("keras.") or kind not in _KNOWN:
        return Leaf("unknown")
    every = tuple(range(ndim))
    if kind in _NORMS:
        return Leaf("norm", outputs=every)
    if name == "bias":
        return Leaf("bias", outputs=every)
    if name == "embeddings":
        return Leaf("embedding", inputs=(0,), outputs=(1,))
    return _kernel(layer, kind, name)


def _kernel(layer: Any, kind: str, name: str) -> Leaf:
    if (kind, name) == ("EinsumDense", "kernel"):
        return kernel_of(layer.equation)
    if kind in ("Dense", *_CELLS) and name in ("kernel", "recurrent_kernel"):
        return Leaf("weight", inputs=(0,), outputs=(1,))
    if kind in (*_WINDOWS, *_TRANSPOSED):
        return _window(len(layer.kernel_size), kind, name)
    return Leaf("unknown")


def _window(rank: int, kind: str, name: str) -> Leaf:
    """Axes of a convolution's kernel: a depthwise one sums over its window alone, a transposed one stores (out, in)."""
    window, first, second = tuple(range(rank)), rank, rank + 1
    if name == "depthwise_kernel" or (kind.startswith("Depthwise") and name == "kernel"):
        return Leaf("weight", outputs=(first, second), shared=window)
    if kind in _TRANSPOSED and name == "kernel":
        return Leaf("weight", inputs=(second,), outputs=(first,), shared=window)
    if name in ("kernel", "pointwise_kernel"):
        return Leaf("weight", inputs=(first,), outputs=(second,), shared=window)
    return Leaf("unknown")
