"""A residual network whose layers are GPU kernels: see `kernels`. Only first-order reverse-mode gradients exist."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.model.networks.architectures import convolution
from tunbridge.model.networks.fused import kernels
from tunbridge.model.networks.programs.patches import DEEP, Shape

_SIDES, _CHANNELS = (16, 64), 16
"""Range of image sides, and channels of the first stage: limits of matrix products and of a program's memory."""


def check(weights: PyTree, x: Array) -> None:
    """Raise InputError unless the kernels take images of this size and layers of this width."""
    height, width, colours, channels = *x.shape[1:], weights["conv"]["weight"].shape[-1]
    for side in (height, width):
        if side & (side - 1) or not _SIDES[0] <= side <= _SIDES[1]:
            raise InputError(
                f"images whose height and width are powers of two from {_SIDES[0]} to {_SIDES[1]}, for fused=True",
                f"{height} x {width}",
                "Use fused=False.",
            )
    if channels != _CHANNELS or colours > DEEP:
        raise InputError(
            f"width {_CHANNELS} and at most {DEEP} channels of an image, for fused=True",
            f"{channels} and {colours}",
            "Use fused=False.",
        )


def stem(weights: PyTree, x: Array) -> Array:
    """First layer of images (points, height, width, channels), as pixels (points, height x width, channels)."""
    kernel = weights["conv"]["weight"]
    return _stem(x.shape[1:3], {name: weights[name] for name in ("conv", "norm")}, x.astype(jnp.result_type(x, kernel)))


def _gradients(conv: PyTree, norm: PyTree, kernel: Array, sums: Array) -> tuple[PyTree, PyTree]:
    """Gradients of a layer's weights as trees, in the dtypes of the weights."""
    gamma, beta, tau, bias = sums
    gradients = {"weight": kernel, "bias": bias}, {"gamma": gamma, "beta": beta, "tau": tau}
    return jax.tree.map(lambda gradient, leaf: gradient.astype(leaf.dtype), gradients, (conv, norm))


def _shape(kernel: Array, height: int, width: int, stride: int) -> Shape:
    window, _, inputs, outputs = kernel.shape
    return Shape(height, width, inputs, outputs, window, stride)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _stem(size: tuple[int, int], weights: PyTree, x: Array) -> Array:
    return _stem_forward(size, weights, x)[0]


def _padded(kernel: Array, x: Array) -> tuple[Array, Array]:
    """Kernel and images, padded to a power of two of input channels."""
    missing = 2 ** math.ceil(math.log2(x.shape[-1])) - x.shape[-1]
    padded = jnp.pad(x, ((0, 0),) * 3 + ((0, missing),))
    return jnp.pad(kernel, ((0, 0),) * 2 + ((0, missing), (0, 0))), padded.reshape(len(x), -1, padded.shape[-1])


def _stem_forward(size: tuple[int, int], weights: PyTree, x: Array) -> tuple[Array, PyTree]:
    kernel, images = _padded(weights["conv"]["weight"], x)
    conv = weights["conv"] | {"weight": kernel}
    plain, out = kernels.layer(_shape(kernel, *size, 1), True, conv, weights["norm"], images, None)
    return out, (weights, x, plain)


def _stem_backward(size: tuple[int, int], kept: PyTree, cotangent: Array) -> tuple[PyTree, Array]:
    weights, x, plain = kept
    kernel, images = _padded(weights["conv"]["weight"], x)
    shape = _shape(kernel, *size, 1)
    cotangent_plain, _, sums = kernels.layer_back(shape, True, weights["norm"], plain, None, cotangent)
    kernel_gradient = kernels.kernel_back(shape, images, cotangent_plain)[:, :, : x.shape[-1]]
    conv, norm = _gradients(weights["conv"], weights["norm"], kernel_gradient, sums)
    _, pullback = jax.vjp(lambda images: convolution.convolve(weights["conv"], images), x)
    return {"conv": conv, "norm": norm}, pullback(cotangent_plain.reshape(*x.shape[:3], -1))[0]


_stem.defvjp(_stem_forward, _stem_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def block(size: tuple[int, int], weights: PyTree, x: Array) -> Array:
    """Apply a residual block to images of this height and width, as pixels (points, height x width, channels)."""
    return _block_forward(size, weights, x)[0]


def _shapes(size: tuple[int, int], weights: PyTree) -> tuple[Shape, Shape, Shape | None]:
    """Shapes of the two convolutions, and of the shortcut's if there is one."""
    stride = 2 if "shortcut" in weights else 1
    smaller = size[0] // stride, size[1] // stride
    first, second = _shape(weights["conv1"]["weight"], *size, stride), _shape(weights["conv2"]["weight"], *smaller, 1)
    return first, second, _shape(weights["shortcut"]["conv"]["weight"], *size, 2) if stride == 2 else None


def _block_forward(size: tuple[int, int], weights: PyTree, x: Array) -> tuple[Array, PyTree]:
    first, second, third = _shapes(size, weights)
    plain1, z = kernels.layer(first, True, weights["conv1"], weights["norm1"], x, None)
    plain3, skip = None, x
    if third is not None:
        plain3, skip = kernels.layer(third, False, weights["shortcut"]["conv"], weights["shortcut"]["norm"], x, None)
    plain2, out = kernels.layer(second, True, weights["conv2"], weights["norm2"], z, skip)
    return out, (weights, x, plain1, z, plain2, plain3, skip)


def _block_backward(size: tuple[int, int], kept: PyTree, cotangent: Array) -> tuple[PyTree, Array]:
    weights, x, plain1, z, plain2, plain3, skip = kept
    first, second, third = _shapes(size, weights)
    cotangent2, cotangent_skip, sums2 = kernels.layer_back(second, True, weights["norm2"], plain2, skip, cotangent)
    cotangent1, _, sums1 = kernels.layer_back(
        first, True, weights["norm1"], plain1, None, kernels.input_back(second, weights["conv2"], cotangent2, None)
    )
    kernel1, kernel2 = kernels.kernel_back(first, x, cotangent1), kernels.kernel_back(second, z, cotangent2)
    gradients = {}
    gradients["conv1"], gradients["norm1"] = _gradients(weights["conv1"], weights["norm1"], kernel1, sums1)
    gradients["conv2"], gradients["norm2"] = _gradients(weights["conv2"], weights["norm2"], kernel2, sums2)
    assert cotangent_skip is not None
    if third is not None:
        shortcut = weights["shortcut"]
        cotangent3, _, sums3 = kernels.layer_back(third, False, shortcut["norm"], plain3, None, cotangent_skip)
        conv, norm = _gradients(shortcut["conv"], shortcut["norm"], kernels.kernel_back(third, x, cotangent3), sums3)
        gradients["shortcut"] = {"conv": conv, "norm": norm}
        cotangent_skip = kernels.input_back(third, shortcut["conv"], cotangent3, None)
    return gradients, kernels.input_back(first, weights["conv1"], cotangent1, cotangent_skip)


block.defvjp(_block_forward, _block_backward)
