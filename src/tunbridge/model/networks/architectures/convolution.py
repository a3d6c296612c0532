r"""Building blocks of networks for images and sequences: convolutions, pooling, filter response normalisation.

Images are (points, height, width, channels) and kernels (height, width, in, out); sequences are (points, length,
channels) and kernels (length, in, out). In low precision, sums over positions are accumulated in float32, in the
forward and in the backward pass.
"""

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from tunbridge.core.errors import InputError
from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks.layout import Leaf

Padding = Literal["SAME", "VALID"]
_SPECS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC")}
FLOOR = 1e-6
"""Constant that filter response normalisation adds to the mean of squares."""
_TRUNCATED = 0.87962566
"""Standard deviation of a standard normal truncated to [-2, 2]."""


def check_images(x: Any, network: Any) -> None:
    """Raise InputError unless x is a batch of images."""
    if x.ndim != 4:
        name = type(network).__name__
        raise InputError(
            f"x of shape (points, height, width, channels) for {name}",
            f"shape {x.shape}",
            "Give grey images one channel: x[..., None].",
        )


def layer(*shape: int) -> PyTree:
    """Shapes of a kernel (..., in, out) and of its bias."""
    return {"weight": _shape(*shape), "bias": _shape(shape[-1])}


def norm(channels: int) -> PyTree:
    """Shapes of the weights of a filter response normalisation."""
    return {name: _shape(channels) for name in ("gamma", "beta", "tau")}


def drawn(key: Key, shapes: PyTree, layout: PyTree, gain: float = 1.0) -> PyTree:
    """Draw kernels and embeddings from a truncated normal of variance gain/fan-in; gamma is 1, the rest is 0.

    Gain 2 preserves the scale of activations under ReLU :cite:p:`he2015delving`. All values are drawn in one call: one
    call per kernel takes long to compile.
    """
    named, roles = flatten_with_paths(shapes), jax.tree.leaves(layout)
    ends = np.cumsum([math.prod(leaf.shape) for _, leaf in named])
    numbers = jax.random.truncated_normal(key, -2.0, 2.0, (int(ends[-1]),)) / _TRUNCATED
    leaves = []
    for (path, leaf), role, end in zip(named, roles, ends, strict=True):
        if role.role in ("weight", "embedding"):
            values = numbers[end - math.prod(leaf.shape) : end].reshape(leaf.shape)
            leaves.append(values * math.sqrt(gain / role.fan_in(leaf.shape)))
        else:
            leaves.append(jnp.full(leaf.shape, float(path.endswith("gamma"))))
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def dense(weights: PyTree, x: Array) -> Array:
    """Affine map x W + b over the last axis."""
    return _shifted(x @ weights["weight"], weights["bias"])


def convolve(weights: PyTree, x: Array, stride: int = 1, padding: Padding = "SAME") -> Array:
    """Convolution of sequences or images, plus the bias."""
    rank, dtype = weights["weight"].ndim - 2, jnp.result_type(x, weights["weight"])
    operands = x.astype(dtype), weights["weight"].astype(dtype)
    z = lax.conv_general_dilated(*operands, (stride,) * rank, padding, dimension_numbers=_SPECS[rank])
    return _shifted(z, weights["bias"])


def frn(weights: PyTree, x: Array) -> Array:
    r"""Filter response normalisation of images, with its threshold :cite:p:`singh2020filter`.

    .. math::

        \max\Big(\gamma \frac{x}{\sqrt{\nu^2 + 10^{-6}}} + \beta, \tau\Big), \quad
        \nu^2 = \text{mean of } x^2 \text{ over height and width}
    """
    gamma, beta, tau = (_along_channels(_wide(weights[name]), x.ndim) for name in ("gamma", "beta", "tau"))
    z = _wide(x)
    nu2 = jnp.mean(jnp.square(z), axis=(1, 2), keepdims=True)
    return jnp.maximum(gamma * z * lax.rsqrt(nu2 + FLOOR) + beta, tau).astype(x.dtype)


def max_pool(x: Array, size: int, padding: Padding = "SAME") -> Array:
    """Maximum over windows of `size` positions along each axis between points and channels."""
    window = (1, *[size] * (x.ndim - 2), 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, padding)


def mean_pool(x: Array, size: int) -> Array:
    """Mean over windows of `size` positions along each axis between points and channels."""
    window = (1, *[size] * (x.ndim - 2), 1)
    return lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") / size ** (x.ndim - 2)


def layout(weights: PyTree) -> PyTree:
    """Layout of weights with the names of `layer` and `norm`, anywhere in a tree."""

    def describe(path: tuple, leaf: Any) -> Leaf:
        name, rank = path[-1].key, len(leaf.shape)
        if name == "weight":
            return Leaf("weight", inputs=(rank - 2,), outputs=(rank - 1,), shared=tuple(range(rank - 2)))
        return Leaf("bias", outputs=(0,)) if name == "bias" else Leaf("norm", outputs=(0,))

    return jax.tree_util.tree_map_with_path(describe, weights)


def _shape(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.result_type(float))


def _shifted(z: Array, bias: Array) -> Array:
    return (_wide(z) + _along_channels(_wide(bias), z.ndim)).astype(z.dtype)


def _along_channels(values: Array, rank: int) -> Array:
    return values.reshape(*[1] * (rank - 1), -1)


def _wide(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
