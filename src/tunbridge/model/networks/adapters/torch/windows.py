"""PyTorch's convolutions, pooling and norms in JAX: points are axis 0, channels axis 1."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _channels(values: Array, ndim: int) -> Array:
    """Reshape (channels,) to (1, channels, 1, ...)."""
    return jnp.reshape(values, (1, -1) + (1,) * (ndim - 2))


def convolution(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    """Convolution over the window axes of the weight, which is (out, in / groups, ...window)."""
    rank = weight.ndim - 2
    steps = _each(dilation, rank)
    if padding == "same":
        spans = [step * (length - 1) for step, length in zip(steps, weight.shape[2:], strict=True)]
        margins = [(span // 2, span - span // 2) for span in spans]
    else:
        margins = [(pad, pad) for pad in _each(0 if padding == "valid" else padding, rank)]
    dtype = jnp.result_type(x, weight)
    outputs = jax.lax.conv_general_dilated(
        x.astype(dtype),
        weight.astype(dtype),
        window_strides=_each(stride, rank),
        padding=margins,
        rhs_dilation=steps,
        feature_group_count=groups,
    )
    return outputs if bias is None else outputs + _channels(bias, outputs.ndim)


def _pooled(x: Array, start: float, join: Callable, rank: int, kernel: Any, stride: Any, pad: Any) -> Array:
    margins = [(0, 0), (0, 0), *((p, p) for p in _each(pad, rank))]
    window, strides = (
        (1, 1, *_each(value, rank)) for value in (kernel, kernel if stride in (None, [], ()) else stride)
    )
    begin = np.asarray(start, x.dtype)  # a constant also under jit: JAX has gradients only for those it recognises
    return jax.lax.reduce_window(x, begin, join, window, strides, margins)


def _max_pool(rank: int) -> Callable:
    def pool(x: Array, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> Array:
        least = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
        if _each(dilation, rank) == (1,) * rank:
            return _pooled(x, least, jax.lax.max, rank, kernel_size, stride, padding)
        return jnp.max(_spread(x, least, rank, kernel_size, stride, padding, dilation), axis=0)

    return pool


def _spread(x: Array, start: float, rank: int, kernel: Any, stride: Any, pad: Any, step: Any) -> Array:
    """Inputs at each place of a dilated window, (places, ...outputs): JAX has no gradient of dilated max pooling."""
    sizes, steps = _each(kernel, rank), _each(step, rank)
    strides = _each(kernel if stride in (None, [], ()) else stride, rank)
    margins = [(0, 0), (0, 0), *((p, p) for p in _each(pad, rank))]
    padded = jnp.pad(x, margins, constant_values=start)
    axes = list(zip(padded.shape[2:], sizes, steps, strides, strict=True))

    def cuts(offsets: tuple[int, ...]) -> list[slice]:
        return [
            slice(i * gap, i * gap + length - gap * (size - 1), by)
            for i, (length, size, gap, by) in zip(offsets, axes, strict=True)
        ]

    return jnp.stack([padded[:, :, *cuts(offsets)] for offsets in itertools.product(*map(range, sizes))])


def _avg_pool(rank: int) -> Callable:
    def pool(
        x: Array, kernel_size: Any, stride: Any = None, padding: Any = 0, *, count_include_pad: bool = True
    ) -> Array:
        def summed(values: Array) -> Array:
            return _pooled(values, 0.0, jax.lax.add, rank, kernel_size, stride, padding)

        if count_include_pad:
            return summed(x) / math.prod(_each(kernel_size, rank))
        return summed(x) / summed(jnp.ones_like(x))

    return pool


def _adaptive_avg_pool(rank: int) -> Callable:
    def pool(x: Array, output_size: Any) -> Array:
        sizes = (output_size,) * rank if output_size is None else _each(output_size, rank)
        for axis, size in zip(range(2, 2 + rank), sizes, strict=True):
            if size is not None:
                averages = jnp.asarray(_bins(x.shape[axis], size), x.dtype)
                x = jnp.moveaxis(jnp.tensordot(x, averages, axes=[[axis], [1]]), -1, axis)
        return x

    return pool


def _bins(length: int, num: int) -> np.ndarray:
    """Matrix of averages over `num` stretches of an axis: floor(i length / num) to ceil((i + 1) length / num)."""
    matrix = np.zeros((num, length))
    for i in range(num):
        start, end = i * length // num, -(-(i + 1) * length // num)
        matrix[i, start:end] = 1 / (end - start)
    return matrix


def batch_norm(
    x: Array,
    running_mean: Array,
    running_var: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    eps: float = 1e-5,
) -> Array:
    """Batch normalisation by the running statistics."""
    z = (x - _channels(running_mean, x.ndim)) * jax.lax.rsqrt(_channels(running_var, x.ndim) + eps)
    z = z if weight is None else z * _channels(weight, x.ndim)
    return z if bias is None else z + _channels(bias, x.ndim)


def _standardised(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    mean = jnp.mean(x, axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.var(x, axes, keepdims=True) + eps)


def layer_norm(
    x: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """Layer normalisation over the last axes."""
    num = len(normalized_shape)
    z, lead = _standardised(x, tuple(range(-num, 0)), eps), (1,) * (x.ndim - num)
    z = z if weight is None else z * jnp.reshape(weight, lead + weight.shape)
    return z if bias is None else z + jnp.reshape(bias, lead + bias.shape)


def group_norm(
    x: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Array:
    """Group normalisation over the channels of each group and all positions."""
    grouped = jnp.reshape(x, (x.shape[0], num_groups, -1))
    z = jnp.reshape(_standardised(grouped, (2,), eps), x.shape)
    z = z if weight is None else z * _channels(weight, x.ndim)
    return z if bias is None else z + _channels(bias, x.ndim)


FUNCTIONS: dict[str, Callable] = {
    "batch_norm": batch_norm,
    "conv1d": convolution,
    "conv2d": convolution,
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    **{f"max_pool{rank}d": _max_pool(rank) for rank in (1, 2)},
    **{f"avg_pool{rank}d": _avg_pool(rank) for rank in (1, 2)},
    **{f"adaptive_avg_pool{rank}d": _adaptive_avg_pool(rank) for rank in (1, 2)},
}
