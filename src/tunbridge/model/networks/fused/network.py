"""A residual network whose layers are programs of a GPU: see `kernels`. Gradients are taken backwards, and once."""

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
"""Of images and of the first stage: what products of matrices can be made of and a program can hold."""


def check(weights: PyTree, x: Array) -> None:
    """InputError unless the kernels take images of this size and layers of this width."""
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
    """The activation of the first normalised convolution of images (points, height, width, channels), as pixels."""
    kernel = weights["conv"]["weight"]
    return _stem(x.shape[1:3], {name: weights[name] for name in ("conv", "norm")}, x.astype(jnp.result_type(x, kernel)))


def _slopes(conv: PyTree, norm: PyTree, kernel: Array, sums: Array) -> tuple[PyTree, PyTree]:
    """The gradients of a layer's weights, as trees of their dtypes."""
    gamma, beta, tau, bias = sums
    found = {"weight": kernel, "bias": bias}, {"gamma": gamma, "beta": beta, "tau": tau}
    return jax.tree.map(lambda slope, leaf: slope.astype(leaf.dtype), found, (conv, norm))


def _shape(kernel: Array, height: int, width: int, stride: int) -> Shape:
    window, _, inputs, outputs = kernel.shape
    return Shape(height, width, inputs, outputs, window, stride)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _stem(size: tuple[int, int], weights: PyTree, x: Array) -> Array:
    return _stem_forward(size, weights, x)[0]


def _padded(kernel: Array, x: Array) -> tuple[Array, Array]:
    """Kernel and images with a power of two of input channels."""
    missing = 2 ** math.ceil(math.log2(x.shape[-1])) - x.shape[-1]
    padded = jnp.pad(x, ((0, 0),) * 3 + ((0, missing),))
    return jnp.pad(kernel, ((0, 0),) * 2 + ((0, missing), (0, 0))), padded.reshape(len(x), -1, padded.shape[-1])


def _stem_forward(size: tuple[int, int], weights: PyTree, x: Array) -> tuple[Array, PyTree]:
    kernel, images = _padded(weights["conv"]["weight"], x)
    conv = weights["conv"] | {"weight": kernel}
    plain, out = kernels.layer(_shape(kernel, *size, 1), True, conv, weights["norm"], images, None)
    return out, (weights, x, plain)


def _stem_backward(size: tuple[int, int], kept: PyTree, slope: Array) -> tuple[PyTree, Array]:
    weights, x, plain = kept
    kernel, images = _padded(weights["conv"]["weight"], x)
    shape = _shape(kernel, *size, 1)
    back, _, sums = kernels.layer_back(shape, True, weights["norm"], plain, None, slope)
    own = kernels.kernel_back(shape, images, back)[:, :, : x.shape[-1]]
    conv, norm = _slopes(weights["conv"], weights["norm"], own, sums)
    _, pull = jax.vjp(lambda images: convolution.convolve(weights["conv"], images), x)
    return {"conv": conv, "norm": norm}, pull(back.reshape(*x.shape[:3], -1))[0]


_stem.defvjp(_stem_forward, _stem_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def block(size: tuple[int, int], weights: PyTree, x: Array) -> Array:
    """A residual block of images of this height and width, as pixels (points, height x width, channels)."""
    return _block_forward(size, weights, x)[0]


def _shapes(size: tuple[int, int], weights: PyTree) -> tuple[Shape, Shape, Shape | None]:
    """Of the two convolutions, and of the shortcut's where there is one."""
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


def _block_backward(size: tuple[int, int], kept: PyTree, slope: Array) -> tuple[PyTree, Array]:
    weights, x, plain1, z, plain2, plain3, skip = kept
    first, second, third = _shapes(size, weights)
    back2, through, sums2 = kernels.layer_back(second, True, weights["norm2"], plain2, skip, slope)
    back1, _, sums1 = kernels.layer_back(
        first, True, weights["norm1"], plain1, None, kernels.input_back(second, weights["conv2"], back2, None)
    )
    kernel1, kernel2 = kernels.kernel_back(first, x, back1), kernels.kernel_back(second, z, back2)
    found = {}
    found["conv1"], found["norm1"] = _slopes(weights["conv1"], weights["norm1"], kernel1, sums1)
    found["conv2"], found["norm2"] = _slopes(weights["conv2"], weights["norm2"], kernel2, sums2)
    assert through is not None
    if third is not None:
        own = weights["shortcut"]
        back3, _, sums3 = kernels.layer_back(third, False, own["norm"], plain3, None, through)
        conv, norm = _slopes(own["conv"], own["norm"], kernels.kernel_back(third, x, back3), sums3)
        found["shortcut"] = {"conv": conv, "norm": norm}
        through = kernels.input_back(third, own["conv"], back3, None)
    return found, kernels.input_back(first, weights["conv1"], back1, through)


block.defvjp(_block_forward, _block_backward)
