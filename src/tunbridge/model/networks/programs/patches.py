"""Index maps between an image and its convolution output."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

DEEP = 64
"""Number of entries of a patch in one matrix product."""


class Gather(NamedTuple):
    """Map from a pixel (r, c) of a result and a tap (i, j) of the kernel to a pixel of an image of `height` x `width`.

    Its row is (r * up + i * sign + shift) / down, if that is a whole number within the image; its column likewise.
    """

    height: int
    width: int
    window: int
    up: int
    down: int
    sign: int
    shift: int

    def tile(self, rows: Array, cols: Array, group: int, channels: int) -> tuple[Array, Array, Array]:
        """For these pixels and each entry of a group of taps: the pixel and channel to read, and whether they exist."""
        number = jnp.arange(DEEP)
        tap = group * (DEEP // channels) + over(number, channels)
        row = (rows * self.up + self.shift)[:, None] + (self.sign * over(tap, self.window))[None, :]
        col = (cols * self.up + self.shift)[:, None] + (self.sign * rest(tap, self.window))[None, :]
        exists = (tap < self.window**2)[None, :] & (row >= 0) & (col >= 0)
        if self.down > 1:
            exists &= (rest(row, self.down) == 0) & (rest(col, self.down) == 0)
            row, col = over(row, self.down), over(col, self.down)
        exists &= (row < self.height) & (col < self.width)
        channel = jnp.broadcast_to(rest(number, channels)[None, :], exists.shape)
        return row * self.width + col, channel, exists


class Shape(NamedTuple):
    """Static sizes of a convolution with square windows."""

    height: int
    width: int
    inputs: int
    outputs: int
    window: int
    stride: int

    @property
    def size(self) -> int:
        """Number of pixels of the result."""
        return (self.height // self.stride) * (self.width // self.stride)

    @property
    def before(self) -> int:
        """Rows of padding before an image, so that the result has 1/stride as many rows."""
        return max((self.height // self.stride - 1) * self.stride + self.window - self.height, 0) // 2

    def patches(self) -> Gather:
        """Map from a pixel of the result to the input pixels that it depends on."""
        return Gather(self.height, self.width, self.window, self.stride, 1, 1, -self.before)

    def scattered(self) -> Gather:
        """Map from a pixel of the input to the pixels of the result that depend on it."""
        height, width = self.height // self.stride, self.width // self.stride
        return Gather(height, width, self.window, 1, self.stride, -1, self.before)


def groups(window: int, channels: int) -> int:
    """Number of groups of taps of a kernel."""
    return -(-(window**2) // (DEEP // channels))


def pixels(start: Any, num: int, width: int) -> tuple[Array, Array]:
    """Rows and columns of `num` consecutive pixels of an image."""
    pixel = start + jnp.arange(num)
    return over(pixel, width), rest(pixel, width)


def over(number: Array, by: int) -> Array:
    """Integer quotients of non-negative numbers, in a form from which the compiler recognises contiguous memory."""
    return jax.lax.div(number, jnp.full_like(number, by))


def rest(number: Array, by: int) -> Array:
    """Remainders of the quotients of `over`."""
    return jax.lax.rem(number, jnp.full_like(number, by))
