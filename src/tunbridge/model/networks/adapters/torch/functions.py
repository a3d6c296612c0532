"""PyTorch's functions in JAX, under PyTorch's names and with its arguments: `FUNCTIONS`."""

import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from tunbridge.model.networks.adapters.torch import windows


def aligned(*values: Any) -> list[Any]:
    """Arrays brought to one rank by leading axes of length 1; scalars stay unchanged."""
    rank = max((value.ndim for value in values if isinstance(value, Array | np.ndarray)), default=0)
    return [jnp.reshape(v, (1,) * (rank - jnp.ndim(v)) + jnp.shape(v)) if jnp.ndim(v) else v for v in values]


def _binary(function: Callable) -> Callable:
    return lambda input, other, *, alpha=1: function(*aligned(input, other if alpha == 1 else alpha * other))


def _reduction(function: Callable) -> Callable:
    return lambda input, dim=None, keepdim=False: function(input, axis=_axes(dim), keepdims=keepdim)


def _variance(function: Callable) -> Callable:
    def reduced(input, dim=None, unbiased=True, keepdim=False, *, correction=None):
        if isinstance(dim, bool):  # x.var(False) means unbiased=False
            dim, unbiased = None, dim
        ddof = int(unbiased) if correction is None else correction
        return function(input, axis=_axes(dim), ddof=ddof, keepdims=keepdim)

    return reduced


def _softmax_axis(x: Array, dim: int | None) -> int:
    """The given axis, or the one that PyTorch takes by default."""
    return dim if dim is not None else 0 if x.ndim in (0, 1, 3) else 1


def _axes(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, list) else dim


def _sizes(sizes: tuple) -> tuple[int, ...]:
    """Sizes as a tuple, from ``view(2, 3)`` or from ``view((2, 3))``."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], list | tuple) else sizes


def reshape(x: Array, *shape: Any) -> Array:
    """Give x another shape: ``reshape`` and ``view``."""
    return jnp.reshape(x, _sizes(shape))


def flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Merge the axes from `start_dim` to `end_dim`."""
    start, end = start_dim % x.ndim, end_dim % x.ndim
    return jnp.reshape(x, (*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


def squeeze(x: Array, dim: Any = None) -> Array:
    """Remove axes of length 1."""
    dims = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    return jnp.squeeze(x, tuple(axis for axis in dims if x.shape[axis] == 1))


def expand(x: Array, *sizes: Any) -> Array:
    """Repeat axes of length 1; -1 keeps a length."""
    shape = _sizes(sizes)
    x = x[(None,) * (len(shape) - x.ndim)]
    return jnp.broadcast_to(x, [old if new == -1 else new for new, old in zip(shape, x.shape, strict=True)])


def pieces(x: Array, size: int | list[int], dim: int = 0) -> list[Array]:
    """Split an axis into pieces of one size, the last perhaps smaller, or of the given sizes."""
    length = x.shape[dim]
    ends = list(range(size, length, size)) if isinstance(size, int) else np.cumsum(size)[:-1].tolist()
    return jnp.split(x, ends, axis=dim)


def chunk(x: Array, chunks: int, dim: int = 0) -> list[Array]:
    """Split an axis into at most `chunks` pieces of one size."""
    return pieces(x, -(-x.shape[dim] // chunks), dim)


def extreme(value: Callable, place: Callable) -> Callable:
    """``max`` and ``min``: over all entries, or (values, indices) along an axis."""

    def reduced(input, dim=None, keepdim=False):
        if dim is None:
            return value(input)
        return value(input, axis=dim, keepdims=keepdim), place(input, axis=dim, keepdims=keepdim)

    return reduced


def getitem(x: Any, index: Any) -> Any:
    """An entry of a tuple, or a part of an array."""
    if isinstance(index, list):
        index = np.asarray(index)
    return x[index]


def size(x: Array, dim: int | None = None) -> Any:
    """The shape, or the length of one axis."""
    return x.shape if dim is None else x.shape[dim]


def dropout(x: Array, p: float = 0.5, training: bool = False, inplace: bool = False) -> Array:
    """Return x unchanged: networks run in evaluation mode."""
    return x


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Affine map: x times the transposed weight (out, in), plus the bias."""
    outputs = jnp.matmul(x, weight.T)
    return outputs if bias is None else operator.add(*aligned(outputs, bias))


def embedding(x: Array, weight: Array, padding_idx: int | None = None) -> Array:
    """Look up rows of the weight by index."""
    return jnp.take(weight, x, axis=0)


def clamp(x: Array, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """Clip x to bounds."""
    return jnp.clip(x, min, max)


def prelu(x: Array, weight: Array) -> Array:
    """Leaky ReLU with a learnt slope below 0: one for all channels, or one per channel."""
    slope = jnp.reshape(weight, (1, -1) + (1,) * (x.ndim - 2))
    return jnp.where(x >= 0, x, slope * x)


def masked_fill(x: Array, mask: Array, value: ArrayLike) -> Array:
    """Replace x by the value where the mask is true."""
    condition, filled, kept = aligned(mask, value, x)
    return jnp.where(condition, filled, kept)


ATTRIBUTES: dict[str, Callable] = {"T": jnp.transpose, "mT": jnp.matrix_transpose, "ndim": jnp.ndim, "shape": jnp.shape}

ACTIVATIONS: dict[str, Callable] = {
    "celu": lambda x, alpha=1.0: jax.nn.celu(x, alpha),
    "elu": lambda x, alpha=1.0: jax.nn.elu(x, alpha),
    "gelu": lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "glu": lambda x, dim=-1: jax.nn.glu(x, dim),
    "hardsigmoid": lambda x: jax.nn.hard_sigmoid(x),
    "hardswish": lambda x: jax.nn.hard_swish(x),
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0: jnp.clip(x, min_val, max_val),
    "leaky_relu": lambda x, negative_slope=0.01: jax.nn.leaky_relu(x, negative_slope),
    "log_softmax": lambda x, dim=None, **_: jax.nn.log_softmax(x, axis=_softmax_axis(x, dim)),
    "logsigmoid": jax.nn.log_sigmoid,
    "mish": lambda x: jax.nn.mish(x),
    "prelu": prelu,
    "relu": lambda x: jax.nn.relu(x),
    "relu6": lambda x: jax.nn.relu6(x),
    "selu": lambda x: jax.nn.selu(x),
    "sigmoid": jax.nn.sigmoid,
    "silu": lambda x: jax.nn.silu(x),
    "softmax": lambda x, dim=None, **_: jax.nn.softmax(x, axis=_softmax_axis(x, dim)),
    "softplus": lambda x, beta=1.0, threshold=20.0: jax.nn.softplus(beta * x) / beta,
    "softsign": jax.nn.soft_sign,
    "tanh": jnp.tanh,
    "tanhshrink": lambda x: x - jnp.tanh(x),
}

ARITHMETIC: dict[str, Callable] = {
    **{name: _binary(getattr(operator, name)) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")},
    **{name: _binary(getattr(operator, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: getattr(jnp, name) for name in ("abs", "cos", "exp", "log", "log1p", "sign", "sin", "sqrt", "square")},
    "div": _binary(operator.truediv),
    "erf": jax.scipy.special.erf,
    "maximum": _binary(jnp.maximum),
    "minimum": _binary(jnp.minimum),
    "neg": operator.neg,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": jax.lax.rsqrt,
    "clamp": clamp,
    "mean": _reduction(jnp.mean),
    "sum": _reduction(jnp.sum),
    "amax": _reduction(jnp.max),
    "amin": _reduction(jnp.min),
    "logsumexp": _reduction(jax.nn.logsumexp),
    "std": _variance(jnp.std),
    "var": _variance(jnp.var),
    "max": extreme(jnp.max, jnp.argmax),
    "min": extreme(jnp.min, jnp.argmin),
    "cumsum": lambda x, dim: jnp.cumsum(x, axis=dim),
    "matmul": jnp.matmul,
    "bmm": jnp.matmul,
    "einsum": jnp.einsum,
    "tril": lambda x, diagonal=0: jnp.tril(x, diagonal),
    "triu": lambda x, diagonal=0: jnp.triu(x, diagonal),
    "masked_fill": masked_fill,
    "where": lambda condition, input, other: masked_fill(other, condition, input),
    "linear": linear,
    "embedding": embedding,
}

SHAPES: dict[str, Callable] = {
    "cat": lambda tensors, dim=0: jnp.concatenate(tensors, axis=dim),
    "chunk": chunk,
    "clone": lambda x: x,
    "contiguous": lambda x: x,
    "detach": jax.lax.stop_gradient,
    "dim": jnp.ndim,
    "dropout": dropout,
    "expand": expand,
    "flatten": flatten,
    "float": lambda x: x.astype(jax.dtypes.canonicalize_dtype(float)),
    "getattr": lambda x, name: ATTRIBUTES[name](x),
    "getitem": getitem,
    "permute": lambda x, *dims: jnp.transpose(x, _sizes(dims)),
    "reshape": reshape,
    "size": size,
    "split": pieces,
    "squeeze": squeeze,
    "stack": lambda tensors, dim=0: jnp.stack(tensors, axis=dim),
    "t": jnp.transpose,
    "transpose": lambda x, dim0, dim1: jnp.swapaxes(x, dim0, dim1),
    "unsqueeze": jnp.expand_dims,
    "view": reshape,
}

FUNCTIONS: dict[str, Callable] = {**ACTIVATIONS, **ARITHMETIC, **SHAPES, **windows.FUNCTIONS}
