"""Which numbers of an image a pixel of its convolution is made of, and which pixels a number has a part in."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

DEEP = 64
"""How many numbers of a patch a product takes at a time."""


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
        number = jnp.arange(DEEP)
        tap = group * (DEEP // channels) + over(number, channels)
        row = (rows * self.up + self.shift)[:, None] + (self.sign * over(tap, self.window))[None, :]
        col = (cols * self.up + self.shift)[:, None] + (self.sign * rest(tap, self.window))[None, :]
        there = (tap < self.window**2)[None, :] & (row >= 0) & (col >= 0)
        if self.down > 1:
            there &= (rest(row, self.down) == 0) & (rest(col, self.down) == 0)
            row, col = over(row, self.down), over(col, self.down)
        there &= (row < self.height) & (col < self.width)
        channel = jnp.broadcast_to(rest(number, channels)[None, :], there.shape)
        return row * self.width + col, channel, there


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


def groups(window: int, channels: int) -> int:
    """How many groups of taps a kernel has."""
    return -(-(window**2) // (DEEP // channels))


def pixels(start: Any, num: int, width: int) -> tuple[Array, Array]:
    """Rows and columns of some pixels of an image."""
    pixel = start + jnp.arange(num)
    return over(pixel, width), rest(pixel, width)


def over(number: Array, by: int) -> Array:
    """Whole quotients of numbers that are not negative, in the form from which the compiler sees what lies together."""
    return jax.lax.div(number, jnp.full_like(number, by))


def rest(number: Array, by: int) -> Array:
    """What these quotients leave."""
    return jax.lax.rem(number, jnp.full_like(number, by))
