r"""What networks of images and of sequences are made of: convolutions, pooling, filter response normalisation.

Images are (points, height, width, channels) and kernels (height, width, in, out); sequences are (points, length,
channels) and kernels (length, in, out). In low precision what is summed over positions, forwards or backwards, is
summed in float32.
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
"""What filter response normalisation adds to the mean of squares."""
_TRUNCATED = 0.87962566
"""The standard deviation of a standard normal number, given that it is between -2 and 2."""


def check_images(x: Any, network: Any) -> None:
    """InputError unless x is images."""
    if x.ndim != 4:
        name = type(network).__name__
        raise InputError(
            f"x of shape (points, height, width, channels) for {name}",
            f"shape {x.shape}",
            "Give grey images one channel: x[..., None].",
        )


def layer(*shape: int) -> PyTree:
    """The shapes of a kernel (..., in, out) and of its bias."""
    return {"weight": _shape(*shape), "bias": _shape(shape[-1])}


def norm(channels: int) -> PyTree:
    """The shapes of a filter response normalisation's weights."""
    return {name: _shape(channels) for name in ("gamma", "beta", "tau")}


def drawn(key: Key, shapes: PyTree, layout: PyTree, gain: float = 1.0) -> PyTree:
    """Kernels and embeddings truncated normal of variance gain/fan-in, gamma 1, biases, beta and tau 0.

    Gain 2 keeps the size of what passes a ReLU :cite:p:`he2015delving`. All numbers are drawn at once: a draw for each
    of many kernels takes long to compile.
    """
    named, roles = flatten_with_paths(shapes), jax.tree.leaves(layout)
    ends = np.cumsum([math.prod(leaf.shape) for _, leaf in named])
    numbers = jax.random.truncated_normal(key, -2.0, 2.0, (int(ends[-1]),)) / _TRUNCATED
    made = []
    for (path, leaf), role, end in zip(named, roles, ends, strict=True):
        if role.role in ("weight", "embedding"):
            own = numbers[end - math.prod(leaf.shape) : end].reshape(leaf.shape)
            made.append(own * math.sqrt(gain / role.fan_in(leaf.shape)))
        else:
            made.append(jnp.full(leaf.shape, float(path.endswith("gamma"))))
    return jax.tree.unflatten(jax.tree.structure(shapes), made)


def dense(weights: PyTree, x: Array) -> Array:
    """X W + b over the last axis."""
    return _shifted(x @ weights["weight"], weights["bias"])


def convolve(weights: PyTree, x: Array, stride: int = 1, padding: Padding = "SAME") -> Array:
    """A convolution of sequences or images, with its bias."""
    rank, dtype = weights["weight"].ndim - 2, jnp.result_type(x, weights["weight"])
    operands = x.astype(dtype), weights["weight"].astype(dtype)
    z = lax.conv_general_dilated(*operands, (stride,) * rank, padding, dimension_numbers=_SPECS[rank])
    return _shifted(z, weights["bias"])


def frn(weights: PyTree, x: Array) -> Array:
    r"""Filter response normalisation of images with its threshold :cite:p:`singh2020filter`.

    .. math::

        \max\Big(\gamma \frac{x}{\sqrt{\nu^2 + 10^{-6}}} + \beta, \tau\Big), \quad
        \nu^2 = \text{mean of } x^2 \text{ over height and width}
    """
    gamma, beta, tau = (_along_channels(_wide(weights[name]), x.ndim) for name in ("gamma", "beta", "tau"))
    z = _wide(x)
    nu2 = jnp.mean(jnp.square(z), axis=(1, 2), keepdims=True)
    return jnp.maximum(gamma * z * lax.rsqrt(nu2 + FLOOR) + beta, tau).astype(x.dtype)


def max_pool(x: Array, size: int, padding: Padding = "SAME") -> Array:
    """The largest of each window of `size` positions along each axis between points and channels."""
    window = (1, *[size] * (x.ndim - 2), 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, padding)


def mean_pool(x: Array, size: int) -> Array:
    """The mean of each window of `size` positions along each axis between points and channels."""
    window = (1, *[size] * (x.ndim - 2), 1)
    return lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") / size ** (x.ndim - 2)


def layout(weights: PyTree) -> PyTree:
    """The axes of `layer` and `norm`, wherever they are in a tree."""

    def one(path: tuple, leaf: Any) -> Leaf:
        name, rank = path[-1].key, len(leaf.shape)
        if name == "weight":
            return Leaf("weight", inputs=(rank - 2,), outputs=(rank - 1,), shared=tuple(range(rank - 2)))
        return Leaf("bias", outputs=(0,)) if name == "bias" else Leaf("norm", outputs=(0,))

    return jax.tree_util.tree_map_with_path(one, weights)


def _shape(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.result_type(float))


def _shifted(z: Array, bias: Array) -> Array:
    return (_wide(z) + _along_channels(_wide(bias), z.ndim)).astype(z.dtype)


def _along_channels(values: Array, rank: int) -> Array:
    return values.reshape(*[1] * (rank - 1), -1)


def _wide(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
