"""PyTorch's layers: the function that runs each, the settings it supports, and the axes of its parameters."""

import dataclasses
from typing import Any

from tunbridge.model.networks.layout import Leaf


@dataclasses.dataclass(frozen=True)
class Layer:
    """How to run one kind of layer: an entry of `LAYERS`.

    Parameters
    ----------
    function
        A name in `functions.FUNCTIONS` or `sequences.FUNCTIONS`.
    settings
        Keyword arguments of the function, from attributes of the layer; "name=a.b" where the names differ.
    arrays
        Keyword arguments of the function that are parameters or buffers; None passes all parameters as `arrays`.
    needs
        Attributes that must have a given value for the layer to be supported.
    """

    function: str
    settings: tuple[str, ...] = ()
    arrays: tuple[str, ...] | None = ()
    needs: tuple[tuple[str, Any], ...] = ()

    def read(self, module: Any) -> dict[str, Any]:
        """Settings of a layer, as keyword arguments of the function."""
        pairs = [setting.partition("=") for setting in self.settings]
        return {name: attribute(module, source or name) for name, _, source in pairs}

    def missing(self, module: Any) -> str:
        """Settings of a layer that the function does not support, as text; "" if there are none."""
        wrong = [name for name, value in self.needs if attribute(module, name) != value]
        return ", ".join(f"{name}={attribute(module, name)!r}" for name in wrong)


def attribute(thing: Any, path: str) -> Any:
    """An attribute of an attribute, by a dotted path; None along the way stays None."""
    for name in path.split("."):
        thing = getattr(thing, name) if thing is not None else None
    return thing


_AFFINE = ("weight", "bias")
_CONV = Layer("conv{}", ("stride", "padding", "dilation", "groups"), _AFFINE, (("padding_mode", "zeros"),))
_BATCH = Layer("batch_norm", ("eps",), (*_AFFINE, "running_mean", "running_var"), (("track_running_stats", True),))
_MAX = Layer(
    "max_pool{}",
    ("kernel_size", "stride", "padding", "dilation"),
    needs=(("ceil_mode", False), ("return_indices", False)),
)
_AVERAGE = ("kernel_size", "stride", "padding", "count_include_pad")
_RECURRENT = ("hidden_size", "num_layers", "bidirectional", "batch_first")
_ACTIVATIONS = {
    "CELU": ("celu", "alpha"),
    "ELU": ("elu", "alpha"),
    "GELU": ("gelu", "approximate"),
    "GLU": ("glu", "dim"),
    "Hardsigmoid": ("hardsigmoid",),
    "Hardswish": ("hardswish",),
    "Hardtanh": ("hardtanh", "min_val", "max_val"),
    "LeakyReLU": ("leaky_relu", "negative_slope"),
    "LogSigmoid": ("logsigmoid",),
    "LogSoftmax": ("log_softmax", "dim"),
    "Mish": ("mish",),
    "ReLU": ("relu",),
    "ReLU6": ("relu6",),
    "SELU": ("selu",),
    "SiLU": ("silu",),
    "Sigmoid": ("sigmoid",),
    "Softmax": ("softmax", "dim"),
    "Softplus": ("softplus", "beta", "threshold"),
    "Softsign": ("softsign",),
    "Tanh": ("tanh",),
    "Tanhshrink": ("tanhshrink",),
}
_DROPOUTS = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "Identity")

LAYERS: dict[str, Layer] = {
    **{name: Layer(function, tuple(settings)) for name, (function, *settings) in _ACTIVATIONS.items()},
    **{name: Layer("dropout") for name in _DROPOUTS},
    **{f"Conv{rank}d": dataclasses.replace(_CONV, function=f"conv{rank}d") for rank in (1, 2)},
    **{f"BatchNorm{rank}d": _BATCH for rank in (1, 2)},
    **{f"MaxPool{rank}d": dataclasses.replace(_MAX, function=f"max_pool{rank}d") for rank in (1, 2)},
    **{f"AdaptiveAvgPool{rank}d": Layer(f"adaptive_avg_pool{rank}d", ("output_size",)) for rank in (1, 2)},
    "AvgPool1d": Layer("avg_pool1d", _AVERAGE, needs=(("ceil_mode", False),)),
    "AvgPool2d": Layer("avg_pool2d", _AVERAGE, needs=(("ceil_mode", False), ("divisor_override", None))),
    "Embedding": Layer("embedding", arrays=("weight",), needs=(("max_norm", None),)),
    "Flatten": Layer("flatten", ("start_dim", "end_dim")),
    "GroupNorm": Layer("group_norm", ("num_groups", "eps"), _AFFINE),
    "LayerNorm": Layer("layer_norm", ("normalized_shape", "eps"), _AFFINE),
    "Linear": Layer("linear", arrays=_AFFINE),
    "PReLU": Layer("prelu", arrays=("weight",)),
    "GRU": Layer("gru", _RECURRENT, None),
    "LSTM": Layer("lstm", _RECURRENT, None, (("proj_size", 0),)),
    "MultiheadAttention": Layer(
        "multi_head_attention", ("num_heads", "batch_first"), None, (("bias_k", None), ("add_zero_attn", False))
    ),
    "TransformerEncoderLayer": Layer(
        "transformer_encoder_layer",
        (
            "num_heads=self_attn.num_heads",
            "batch_first=self_attn.batch_first",
            "norm_first",
            "activation=activation_relu_or_gelu",
            "eps=norm1.eps",
        ),
        None,
    ),
}

_NORMS = ("BatchNorm1d", "BatchNorm2d", "GroupNorm", "LayerNorm")
_KERNELS = ("Linear", "NonDynamicallyQuantizableLinear", "Conv1d", "Conv2d", "GRU", "LSTM", "MultiheadAttention")


def leaf_of(kind: str, name: str, ndim: int) -> Leaf:
    """Axes of a parameter of a layer: PyTorch stores (out, in), and a convolution's window after them."""
    every = tuple(range(ndim))
    if kind in _NORMS:
        return Leaf("norm", outputs=every)
    if kind == "Embedding":
        return Leaf("embedding", inputs=(0,), outputs=(1,))
    if kind in _KERNELS and "bias" in name:
        return Leaf("bias", outputs=every)
    if kind in _KERNELS and "weight" in name:
        return Leaf("weight", inputs=(1,), outputs=(0,), shared=every[2:])
    return Leaf("unknown")
