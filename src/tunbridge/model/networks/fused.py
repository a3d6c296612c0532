r"""A convolution, its normalisation and its activation in one pass over an image, forwards and backwards, on a GPU.

Filter response normalisation takes its mean over the pixels of one image and channel, so a program that holds an image
has all it needs: :math:`z = \phi(\max(\gamma \hat y + \beta, \tau) + s)` with :math:`\hat y = y / \sqrt{\nu^2 + \epsilon}`
leaves the chip once and *y* once, for the way back, where

.. math::

    \partial y = \frac{\partial \hat y - \hat y \, \overline{\partial \hat y \, \hat y}}{\sqrt{\nu^2 + \epsilon}}.

A convolution is a product of patches, `_DEEP` numbers at a time (a group of taps times the channels), with a matrix.
Weights are those of `tunbridge.model.networks.convolution`. Reverse mode alone can be differentiated.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from tunbridge.core.types import PyTree
from tunbridge.model.networks import convolution

_DEEP = 64
"""How many numbers of a patch a product takes at a time."""
_ROWS = 256
"""How many pixels a product takes at a time."""
_FEW_ROWS = 128
"""The same where several products are taken of them."""
_PROGRAMS = 528
"""How many programs share the images of a batch where each sums over its own."""
_HELD = 3 * _DEEP * 64
"""How many sums of a kernel's gradient a program holds."""
_FLOOR = 1e-6


class Gather(NamedTuple):
    """Which pixels of an image of `height` x `width` meet tap (i, j) of a kernel at the pixel (r, c) of the result.

    Row (r * up + i * sign + shift) / down, if that is a whole number within the image; columns likewise.
    """

    height: int
    width: int
    window: int
    up: int
    down: int
    sign: int
    shift: int

    def tile(self, rows: Array, cols: Array, group: int, channels: int) -> tuple[Array, Array, Array]:
        """For these pixels and the numbers of a group of taps: the pixel each is read from, its channel, if any."""
        number = jnp.arange(_DEEP)
        tap = group * (_DEEP // channels) + _over(number, channels)
        row = (rows * self.up + self.shift)[:, None] + (self.sign * _over(tap, self.window))[None, :]
        col = (cols * self.up + self.shift)[:, None] + (self.sign * _rest(tap, self.window))[None, :]
        there = (tap < self.window**2)[None, :] & (row >= 0) & (col >= 0)
        if self.down > 1:
            there &= (_rest(row, self.down) == 0) & (_rest(col, self.down) == 0)
            row, col = _over(row, self.down), _over(col, self.down)
        there &= (row < self.height) & (col < self.width)
        channel = jnp.broadcast_to(_rest(number, channels)[None, :], there.shape)
        return row * self.width + col, channel, there


def _over(number: Array, by: int) -> Array:
    """Whole quotients of numbers that are not negative, in the form from which the compiler sees what lies together."""
    return jax.lax.div(number, jnp.full_like(number, by))


def _rest(number: Array, by: int) -> Array:
    return jax.lax.rem(number, jnp.full_like(number, by))


def _groups(window: int, channels: int) -> int:
    return -(-(window**2) // (_DEEP // channels))


def _pixels(start: int, num: int, width: int) -> tuple[Array, Array]:
    pixel = start + jnp.arange(num)
    return _over(pixel, width), _rest(pixel, width)


def _gathered(source: Any, image: Any, gather: Gather, rows: Array, cols: Array, group: int, channels: int) -> Array:
    pixel, channel, there = gather.tile(rows, cols, group, channels)
    return triton.load(source.at[image, pixel, channel], mask=there, other=0.0)


def _product(a: Array, b: Array, axis: int) -> Array:
    """The sum over an axis of a and the first of b, in float32."""
    return jax.lax.dot_general(a, b, (((axis,), (0,)), ((), ())), preferred_element_type=jnp.float32)


def _convolved(source: Any, kernel: Any, image: Any, gather: Gather, size: int, width: int, channels: int) -> list:
    """The convolution of an image, in float32, in parts of at most `_ROWS` pixels."""
    parts = []
    for start in range(0, size, _ROWS):
        num = min(_ROWS, size)
        rows, cols = _pixels(start, num, width)


        def add(group, total, rows=rows, cols=cols):
            patches = _gathered(source, image, gather, rows, cols, group, channels)
            return total + _product(patches, kernel[group], 1)

        empty = jnp.zeros((num, kernel.shape[-1]), jnp.float32)
        parts.append(jax.lax.fori_loop(0, kernel.shape[0], add, empty))
    return parts


def _slices(size: int) -> list[pl.Slice]:
    return [pl.ds(start, min(_ROWS, size)) for start in range(0, size, _ROWS)]


def _normal(parts: list[Array]) -> tuple[list[Array], Array]:
    """Each part over the root of the mean of squares of all, and one over that root."""
    size = sum(part.shape[0] for part in parts)
    inverse = jax.lax.rsqrt(jnp.sum(sum(part * part for part in parts), axis=0) / size + _FLOOR)
    return [part * inverse[None, :] for part in parts], inverse


def _forward(gather, size, width, channels, swish, skips, *refs):
    source, kernel, bias, gamma, beta, tau, *rest = refs
    skip, (plain, out) = (rest[0] if skips else None), rest[-2:]
    image = pl.program_id(0)
    parts = [part + bias[...][None, :] for part in _convolved(source, kernel, image, gather, size, width, channels)]
    for part, place in zip(parts, _slices(size), strict=True):
        plain[image, place, :] = part.astype(plain.dtype)
    for part, place in zip(_normal(parts)[0], _slices(size), strict=True):
        z = jnp.maximum(gamma[...][None, :] * part + beta[...][None, :], tau[...][None, :])
        if skip is not None:
            z += skip[image, place, :].astype(jnp.float32)
        out[image, place, :] = (z * jax.nn.sigmoid(z) if swish else z).astype(out.dtype)


def _backward(size, swish, skips, *refs):
    slope, plain, gamma, beta, tau, *rest = refs
    skip, (slope_plain, slope_sum, sums) = (rest[0] if skips else None), rest[-3:]
    image, scale = pl.program_id(0), gamma[...][None, :]
    hats, inverse = _normal([plain[image, place, :].astype(jnp.float32) for place in _slices(size)])
    slopes, terms = [], []
    for hat, place in zip(hats, _slices(size), strict=True):
        back = slope[image, place, :].astype(jnp.float32)
        raw = scale * hat + beta[...][None, :]
        above = raw > tau[...][None, :]
        z = jnp.maximum(raw, tau[...][None, :])
        if skip is not None:
            z += skip[image, place, :].astype(jnp.float32)
        if swish:
            gate = jax.nn.sigmoid(z)
            back = back * (gate + z * gate * (1.0 - gate))
        if skips:
            slope_sum[image, place, :] = back.astype(slope_sum.dtype)
        through = jnp.where(above, back, 0.0)
        slopes.append(through * scale)
        terms.append((through * hat, through, back - through, hat))
    on_hat, on_one, below, hat_sum = (jnp.sum(sum(parts), axis=0) for parts in zip(*terms, strict=True))
    mean = gamma[...] * on_hat / size
    for part, hat, place in zip(slopes, hats, _slices(size), strict=True):
        found = inverse[None, :] * (part - hat * mean[None, :])
        slope_plain[image, place, :] = found.astype(slope_plain.dtype)
    for i, total in enumerate((on_hat, on_one, below, inverse * (gamma[...] * on_one - mean * hat_sum))):
        sums[image, i, :] = total


def _input_slope(gather, size, width, channels, adds, *refs):
    slope, kernel, *rest = refs
    out, image = rest[-1], pl.program_id(0)
    parts = _convolved(slope, kernel, image, gather, size, width, channels)
    for part, place in zip(parts, _slices(size), strict=True):
        total = part + rest[0][image, place, :].astype(jnp.float32) if adds else part
        out[image, place, :] = total.astype(out.dtype)


def _kernel_slope(gather, size, width, channels, inner, num, source, slope, out):
    program, programs, first = pl.program_id(0), pl.num_programs(0), pl.program_id(1) * inner
    outputs = slope.shape[-1]

    few = min(_FEW_ROWS, size)
    parts = size // few

    def add(turn, totals):
        image, start = program + _over(turn, parts) * programs, _rest(turn, parts) * few
        rows, cols = _pixels(start, few, width)
        back = slope[image, pl.ds(start, few), :]
        return tuple(
            total + _product(_gathered(source, image, gather, rows, cols, first + i, channels), back, 0)
            for i, total in enumerate(totals)
        )

    turns = jax.lax.div(num - program + programs - 1, programs) * parts
    empty = tuple(jnp.zeros((_DEEP, outputs), jnp.float32) for _ in range(inner))
    for i, total in enumerate(jax.lax.fori_loop(0, turns, add, empty)):
        out[program, first + i, :, :] = total


class Shape(NamedTuple):
    """A convolution of square windows: what is known before it runs."""

    height: int
    width: int
    inputs: int
    outputs: int
    window: int
    stride: int

    @property
    def size(self) -> int:
        """Pixels of the result."""
        return (self.height // self.stride) * (self.width // self.stride)

    @property
    def before(self) -> int:
        """Rows of padding before an image, so that the result has 1/stride as many rows."""
        return max((self.height // self.stride - 1) * self.stride + self.window - self.height, 0) // 2

    def patches(self) -> Gather:
        """What of its input a pixel of the result is made of."""
        return Gather(self.height, self.width, self.window, self.stride, 1, 1, -self.before)

    def scattered(self) -> Gather:
        """Which pixels of the result one of its input has a part in."""
        height, width = self.height // self.stride, self.width // self.stride
        return Gather(height, width, self.window, 1, self.stride, -1, self.before)


def _call(body: Any, grid: tuple[int, ...], shapes: Any, warps: int, operands: list[Array], stages: int = 2) -> Any:
    return pl.pallas_call(
        body,
        grid=grid,
        out_shape=shapes,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * len(operands),
        out_specs=jax.tree.map(lambda _: pl.BlockSpec(memory_space=pl.ANY), shapes),
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=stages),
        interpret=jax.default_backend() == "cpu",
    )(*operands)


def _stacked(kernel: Array, window: int) -> Array:
    """A kernel (taps, in, out) as matrices (groups, `_DEEP`, out), with zeros for taps that are not there."""
    channels, outputs = kernel.shape[1:]
    groups = _groups(window, channels)
    missing = groups * (_DEEP // channels) - window**2
    return jnp.pad(kernel, ((0, missing), (0, 0), (0, 0))).reshape(groups, _DEEP, outputs)


def _warps(size: int) -> int:
    return 8 if size >= _ROWS else 4


def _like(x: Array, *shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, x.dtype)


def _layer(shape: Shape, swish: bool, conv: PyTree, norm: PyTree, x: Array, skip: Array | None) -> tuple[Array, Array]:
    """The convolution, for the way back, and what is made of it; images are (points, pixels, channels)."""
    kernel = conv["weight"].reshape(-1, shape.inputs, shape.outputs).astype(x.dtype)
    wide = [leaf.astype(jnp.float32) for leaf in (conv["bias"], norm["gamma"], norm["beta"], norm["tau"])]
    operands = [x, _stacked(kernel, shape.window), *wide, *([] if skip is None else [skip])]
    width = shape.width // shape.stride
    body = partial(_forward, shape.patches(), shape.size, width, shape.inputs, swish, skip is not None)
    out = _like(x, len(x), shape.size, shape.outputs)
    return _call(body, (len(x),), (out, out), _warps(shape.size), operands)


def _layer_back(
    shape: Shape, swish: bool, norm: PyTree, plain: Array, skip: Array | None, slope: Array
) -> tuple[Array, Array, Array]:
    """The slopes of the convolution, of the sum with `skip`, and of (gamma, beta, tau, bias)."""
    wide = [norm[name].astype(jnp.float32) for name in ("gamma", "beta", "tau")]
    operands = [slope, plain, *wide, *([] if skip is None else [skip])]
    body, num = partial(_backward, shape.size, swish, skip is not None), len(plain)
    summed = (num, shape.size, shape.outputs) if skip is not None else (1, 1, 1)
    shapes = (_like(plain, *plain.shape), _like(plain, *summed), jax.ShapeDtypeStruct((num, 4, shape.outputs), jnp.float32))
    slope_plain, slope_sum, sums = _call(body, (num,), shapes, _warps(shape.size), operands)
    return slope_plain, slope_sum, jnp.sum(sums, axis=0)


def _input_back(shape: Shape, conv: PyTree, slope: Array, add: Array | None) -> Array:
    kernel = conv["weight"].reshape(-1, shape.inputs, shape.outputs).astype(slope.dtype)
    size = shape.height * shape.width
    body = partial(_input_slope, shape.scattered(), size, shape.width, shape.outputs, add is not None)
    operands = [slope, _stacked(jnp.swapaxes(kernel, 1, 2), shape.window), *([] if add is None else [add])]
    return _call(body, (len(slope),), _like(slope, len(slope), size, shape.inputs), _warps(size), operands)


def _kernel_back(shape: Shape, x: Array, slope: Array) -> Array:
    groups, num = _groups(shape.window, shape.inputs), len(x)
    inner = next(i for i in range(groups, 0, -1) if groups % i == 0 and i * _DEEP * shape.outputs <= _HELD)
    programs = min(num, max(1, _PROGRAMS * inner // groups))
    width = shape.width // shape.stride
    body = partial(_kernel_slope, shape.patches(), shape.size, width, shape.inputs, inner, num)
    out = jax.ShapeDtypeStruct((programs, groups, _DEEP, shape.outputs), jnp.float32)
    sums = _call(body, (programs, groups // inner), out, 4, [x, slope], stages=1)
    taps = jnp.sum(sums, axis=0).reshape(-1, shape.inputs, shape.outputs)[: shape.window**2]
    return taps.reshape(shape.window, shape.window, shape.inputs, shape.outputs)


def _slopes(conv: PyTree, norm: PyTree, kernel: Array, sums: Array) -> tuple[PyTree, PyTree]:
    """The slopes of a layer's weights, as trees of their dtypes."""
    gamma, beta, tau, bias = sums
    found = {"weight": kernel, "bias": bias}, {"gamma": gamma, "beta": beta, "tau": tau}
    return jax.tree.map(lambda slope, leaf: slope.astype(leaf.dtype), found, (conv, norm))


def _shape(kernel: Array, height: int, width: int, stride: int) -> Shape:
    return Shape(height, width, *kernel.shape[2:], kernel.shape[0], stride)


def stem(weights: PyTree, x: Array) -> Array:
    """The activation of the first normalised convolution of images (points, height, width, channels), as pixels."""
    return _stem(x.shape[1:3], {name: weights[name] for name in ("conv", "norm")}, x)


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
    plain, out = _layer(_shape(kernel, *size, 1), True, conv, weights["norm"], images, None)
    return out, (weights, x, plain)


def _stem_backward(size: tuple[int, int], kept: PyTree, slope: Array) -> tuple[PyTree, Array]:
    weights, x, plain = kept
    kernel, images = _padded(weights["conv"]["weight"], x)
    shape = _shape(kernel, *size, 1)
    back, _, sums = _layer_back(shape, True, weights["norm"], plain, None, slope)
    own = _kernel_back(shape, images, back)[:, :, : x.shape[-1]]
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
    plain1, z = _layer(first, True, weights["conv1"], weights["norm1"], x, None)
    plain3, skip = None, x
    if third is not None:
        plain3, skip = _layer(third, False, weights["shortcut"]["conv"], weights["shortcut"]["norm"], x, None)
    plain2, out = _layer(second, True, weights["conv2"], weights["norm2"], z, skip)
    return out, (weights, x, plain1, z, plain2, plain3, skip)


def _block_backward(size: tuple[int, int], kept: PyTree, slope: Array) -> tuple[PyTree, Array]:
    weights, x, plain1, z, plain2, plain3, skip = kept
    first, second, third = _shapes(size, weights)
    back2, through, sums2 = _layer_back(second, True, weights["norm2"], plain2, skip, slope)
    back1, _, sums1 = _layer_back(
        first, True, weights["norm1"], plain1, None, _input_back(second, weights["conv2"], back2, None)
    )
    found = {}
    found["conv1"], found["norm1"] = _slopes(
        weights["conv1"], weights["norm1"], _kernel_back(first, x, back1), sums1
    )
    found["conv2"], found["norm2"] = _slopes(
        weights["conv2"], weights["norm2"], _kernel_back(second, z, back2), sums2
    )
    if third is not None:
        own = weights["shortcut"]
        back3, _, sums3 = _layer_back(third, False, own["norm"], plain3, None, through)
        conv, norm = _slopes(own["conv"], own["norm"], _kernel_back(third, x, back3), sums3)
        found["shortcut"] = {"conv": conv, "norm": norm}
        through = _input_back(third, own["conv"], back3, None)
    return found, _input_back(first, weights["conv1"], back1, through)


block.defvjp(_block_forward, _block_backward)
