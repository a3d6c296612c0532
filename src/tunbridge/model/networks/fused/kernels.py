r"""GPU kernels for one image per program: a convolution with its normalisation and activation, and their gradients.

Filter response normalisation takes its mean over the pixels of one image and channel, so a program that holds an image
has all it needs. With the convolution *y*,

.. math::

    z = \phi\big(\max(\gamma \hat y + \beta, \tau) + s\big), \qquad \hat y = \frac{y}{\sqrt{\nu^2 + \epsilon}}, \qquad
    \partial y = \frac{\partial \hat y - \hat y \, \overline{\partial \hat y \, \hat y}}{\sqrt{\nu^2 + \epsilon}},

*z* is written to memory once, and *y* once for the backward pass. A convolution is a product of patches, `DEEP` entries
at a time (a group of taps times the channels), with a matrix. Images are (points, pixels, channels).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.model.networks.architectures import convolution
from tunbridge.model.networks.programs.patches import DEEP, Gather, Shape, groups, over, pixels, rest

_ROWS = 256
"""Number of pixels in one matrix product."""
_FEW_ROWS = 128
"""The same where several products share the pixels."""
_PROGRAMS = 528
"""Number of programs that share the images of a batch where each sums over its own."""
_HELD = 3 * DEEP * 64
"""Maximum number of entries of a kernel's gradient that a program accumulates."""


def _gathered(source: Any, image: Any, gather: Gather, rows: Array, cols: Array, group: int, channels: int) -> Array:
    pixel, channel, exists = gather.tile(rows, cols, group, channels)
    return triton.load(source.at[image, pixel, channel], mask=exists, other=0.0)


def _product(a: Array, b: Array, axis: int) -> Array:
    """Matrix product that sums over `axis` of a and the first axis of b, in float32."""
    return jax.lax.dot_general(a, b, (((axis,), (0,)), ((), ())), preferred_element_type=jnp.float32)


def _convolved(source: Any, kernel: Any, image: Any, gather: Gather, size: int, width: int, channels: int) -> list:
    """Convolution of an image in float32, in parts of at most `_ROWS` pixels."""
    parts = []
    for start in range(0, size, _ROWS):
        num = min(_ROWS, size)
        rows, cols = pixels(start, num, width)

        def add(group, total, rows=rows, cols=cols):
            patches = _gathered(source, image, gather, rows, cols, group, channels)
            return total + _product(patches, kernel[group], 1)

        empty = jnp.zeros((num, kernel.shape[-1]), jnp.float32)
        parts.append(jax.lax.fori_loop(0, kernel.shape[0], add, empty))
    return parts


def _slices(size: int) -> list[Any]:
    return [pl.ds(start, min(_ROWS, size)) for start in range(0, size, _ROWS)]


def _normal(parts: list[Array]) -> tuple[list[Array], Array]:
    """Each part divided by the root mean square of all, and the inverse of that root."""
    size = sum(part.shape[0] for part in parts)
    inverse = jax.lax.rsqrt(jnp.sum(sum(part * part for part in parts), axis=0) / size + convolution.FLOOR)
    return [part * inverse[None, :] for part in parts], inverse


def _wide(ref: Any, image: Any, place: Any) -> Array:
    return ref[image, place, :].astype(jnp.float32)


def _activation(hat: Array, gamma: Any, beta: Any, tau: Any, skip: Array | None) -> tuple[Array, Array]:
    """Argument of the activation, and a mask of where it is above the threshold."""
    raw, least = gamma[...][None, :] * hat + beta[...][None, :], tau[...][None, :]
    z = jnp.maximum(raw, least)
    return z if skip is None else z + skip, raw > least


def _forward(gather, size, width, channels, swish, skips, *refs):
    source, kernel, bias, gamma, beta, tau, *more = refs
    skip, (plain, out) = (more[0] if skips else None), more[-2:]
    image = pl.program_id(0)
    parts = [part + bias[...][None, :] for part in _convolved(source, kernel, image, gather, size, width, channels)]
    for part, place in zip(parts, _slices(size), strict=True):
        plain[image, place, :] = part.astype(plain.dtype)
    for part, place in zip(_normal(parts)[0], _slices(size), strict=True):
        z, _ = _activation(part, gamma, beta, tau, _wide(skip, image, place) if skips else None)
        out[image, place, :] = (z * jax.nn.sigmoid(z) if swish else z).astype(out.dtype)


def _backward(size, swish, skips, *refs):
    cotangent, plain, gamma, beta, tau, *more = refs
    skip, (cotangent_plain, cotangent_sum, sums) = (more[0] if skips else None), more[-3:]
    image = pl.program_id(0)
    hats, inverse = _normal([_wide(plain, image, place) for place in _slices(size)])
    cotangents_hat, terms = [], []
    for hat, place in zip(hats, _slices(size), strict=True):
        incoming = _wide(cotangent, image, place)
        z, above = _activation(hat, gamma, beta, tau, _wide(skip, image, place) if skips else None)
        if swish:
            gate = jax.nn.sigmoid(z)
            incoming = incoming * (gate + z * gate * (1.0 - gate))
        if skips:
            cotangent_sum[image, place, :] = incoming.astype(cotangent_sum.dtype)
        through = jnp.where(above, incoming, 0.0)
        cotangents_hat.append(through * gamma[...][None, :])
        terms.append((through * hat, through, incoming - through, hat))
    grad_gamma, grad_beta, grad_tau, hat_sum = (jnp.sum(sum(parts), axis=0) for parts in zip(*terms, strict=True))
    mean = gamma[...] * grad_gamma / size
    for cotangent_hat, hat, place in zip(cotangents_hat, hats, _slices(size), strict=True):
        cotangent_y = inverse[None, :] * (cotangent_hat - hat * mean[None, :])
        cotangent_plain[image, place, :] = cotangent_y.astype(cotangent_plain.dtype)
    for i, total in enumerate((grad_gamma, grad_beta, grad_tau, inverse * (gamma[...] * grad_beta - mean * hat_sum))):
        sums[image, i, :] = total


def _input_gradient(gather, size, width, channels, adds, *refs):
    cotangent, kernel, *more = refs
    out, image = more[-1], pl.program_id(0)
    parts = _convolved(cotangent, kernel, image, gather, size, width, channels)
    for part, place in zip(parts, _slices(size), strict=True):
        total = part + _wide(more[0], image, place) if adds else part
        out[image, place, :] = total.astype(out.dtype)


def _kernel_gradient(gather, size, width, channels, inner, num, source, cotangent, out):
    program, programs, first = pl.program_id(0), pl.num_programs(0), pl.program_id(1) * inner
    outputs = cotangent.shape[-1]

    few = min(_FEW_ROWS, size)
    parts = size // few

    def add(iteration, totals):
        image, start = program + over(iteration, parts) * programs, rest(iteration, parts) * few
        rows, cols = pixels(start, few, width)
        cotangent_rows = cotangent[image, pl.ds(start, few), :]
        return tuple(
            total + _product(_gathered(source, image, gather, rows, cols, first + i, channels), cotangent_rows, 0)
            for i, total in enumerate(totals)
        )

    iterations = jax.lax.div(num - program + programs - 1, programs) * parts
    empty = tuple(jnp.zeros((DEEP, outputs), jnp.float32) for _ in range(inner))
    for i, total in enumerate(jax.lax.fori_loop(0, iterations, add, empty)):
        out[program, first + i, :, :] = total


def _call(body: Any, grid: tuple[int, ...], shapes: Any, warps: int, operands: list[Array], stages: int = 2) -> Any:
    """Run a kernel and return its outputs; without a GPU, for tests only, it is interpreted step by step."""
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    kernel = jax.custom_jvp(
        pl.pallas_call(
            body,
            grid=grid,
            out_shape=shapes,
            in_specs=[anywhere] * len(operands),
            out_specs=jax.tree.map(lambda _: anywhere, shapes),
            compiler_params=triton.CompilerParams(num_warps=warps, num_stages=stages),
            interpret=jax.default_backend() != "gpu",
        )
    )
    kernel.defjvp(_refuse)
    return kernel(*operands)


def _refuse(_values: Any, _tangents: Any) -> Any:
    raise InputError(
        "a method that only takes first-order gradients by backpropagation",
        "forward-mode differentiation, which measured step sizes need, with fused=True",
        "Give the method a step size, or use fused=False.",
    )


def _taps(shape: Shape, conv: PyTree, x: Array) -> Array:
    """Kernel as (taps, in, out), in the precision of x."""
    return conv["weight"].reshape(-1, shape.inputs, shape.outputs).astype(x.dtype)


def _stacked(kernel: Array, window: int) -> Array:
    """Kernel (taps, in, out) as matrices (groups, `DEEP`, out), with zeros for missing taps."""
    channels, outputs = kernel.shape[1:]
    num = groups(window, channels)
    missing = num * (DEEP // channels) - window**2
    return jnp.pad(kernel, ((0, missing), (0, 0), (0, 0))).reshape(num, DEEP, outputs)


def _warps(size: int) -> int:
    return 8 if size >= _ROWS else 4


def _like(x: Array, *shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, x.dtype)


def layer(shape: Shape, swish: bool, conv: PyTree, norm: PyTree, x: Array, skip: Array | None) -> tuple[Array, Array]:
    """Return the convolution, kept for the backward pass, and the layer's output, (points, pixels, channels) each."""
    wide = [leaf.astype(jnp.float32) for leaf in (conv["bias"], norm["gamma"], norm["beta"], norm["tau"])]
    operands = [x, _stacked(_taps(shape, conv, x), shape.window), *wide, *([] if skip is None else [skip])]
    width = shape.width // shape.stride
    body = partial(_forward, shape.patches(), shape.size, width, shape.inputs, swish, skip is not None)
    out = _like(x, len(x), shape.size, shape.outputs)
    return _call(body, (len(x),), (out, out), _warps(shape.size), operands)


def layer_back(
    shape: Shape, swish: bool, norm: PyTree, plain: Array, skip: Array | None, cotangent: Array
) -> tuple[Array, Array | None, Array]:
    """Gradients for the convolution, for the sum with `skip` if there is one, and for (gamma, beta, tau, bias)."""
    wide = [norm[name].astype(jnp.float32) for name in ("gamma", "beta", "tau")]
    operands = [cotangent, plain, *wide, *([] if skip is None else [skip])]
    body, num = partial(_backward, shape.size, swish, skip is not None), len(plain)
    summed = (num, shape.size, shape.outputs) if skip is not None else (1, 1, 1)
    shapes = (
        _like(plain, *plain.shape),
        _like(plain, *summed),
        jax.ShapeDtypeStruct((num, 4, shape.outputs), jnp.float32),
    )
    cotangent_plain, cotangent_sum, sums = _call(body, (num,), shapes, _warps(shape.size), operands)
    return cotangent_plain, None if skip is None else cotangent_sum, jnp.sum(sums, axis=0)


def input_back(shape: Shape, conv: PyTree, cotangent: Array, add: Array | None) -> Array:
    """Gradient for the input images, plus `add` if given."""
    kernel, size = jnp.swapaxes(_taps(shape, conv, cotangent), 1, 2), shape.height * shape.width
    body = partial(_input_gradient, shape.scattered(), size, shape.width, shape.outputs, add is not None)
    operands = [cotangent, _stacked(kernel, shape.window), *([] if add is None else [add])]
    return _call(body, (len(cotangent),), _like(cotangent, len(cotangent), size, shape.inputs), _warps(size), operands)


def kernel_back(shape: Shape, x: Array, cotangent: Array) -> Array:
    """Gradient for the kernel, (height, width, in, out)."""
    whole, num = groups(shape.window, shape.inputs), len(x)
    inner = next(i for i in range(whole, 0, -1) if whole % i == 0 and i * DEEP * shape.outputs <= _HELD)
    programs = min(num, max(1, _PROGRAMS * inner // whole))
    width = shape.width // shape.stride
    body = partial(_kernel_gradient, shape.patches(), shape.size, width, shape.inputs, inner, num)
    out = jax.ShapeDtypeStruct((programs, whole, DEEP, shape.outputs), jnp.float32)
    sums = _call(body, (programs, whole // inner), out, 4, [x, cotangent], stages=1)
    taps = jnp.sum(sums, axis=0).reshape(-1, shape.inputs, shape.outputs)[: shape.window**2]
    return taps.reshape(shape.window, shape.window, shape.inputs, shape.outputs)
