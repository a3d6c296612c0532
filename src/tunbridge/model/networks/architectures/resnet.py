"""Residual networks with filter response normalisation."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks import sizes
from tunbridge.model.networks.architectures import convolution

_STAGES = 3


class ResNet20(Module):
    r"""A residual network without batch statistics, as in :cite:t:`izmailov2021what`.

    A convolution, then three stages of blocks :math:`\phi(x + F(x))` :cite:p:`he2016deep`, the mean over all pixels,
    and a linear layer. Every convolution has a bias and is followed by filter response normalisation with its threshold
    :cite:p:`singh2020filter`; :math:`\phi` is swish. *F* is two convolutions of 3 x 3 with :math:`\phi` between them.
    The first block of the second and third stage halves height and width, doubles the channels and projects its x by
    a normalised convolution of 1 x 1. Images may have any size. For 32 x 32 pixels of three colours and 10 classes it
    has 274,042 weights, as in ``stages/0/0/conv1/weight`` (stage, block).

    Parameters
    ----------
    width
        Number of channels of the first stage.
    blocks
        Number of blocks per stage; *b* of them make 6 b + 2 layers.
    outputs
        Number of outputs; None takes what the likelihood needs.
    fused
        Whether to fuse each convolution with its normalisation and activation into one GPU kernel: about twice as fast
        in bfloat16 (`Cast`), for methods that need gradients only. Layer-wise curvature and measured step sizes
        (SWAG's too) refuse it.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> network, x = ResNet20(width=4, blocks=1, outputs=10), jnp.zeros((2, 8, 8, 3))
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (2, 10)
    """

    width: int = eqx.field(default=16, static=True)
    blocks: int = eqx.field(default=3, static=True)
    outputs: int | None = eqx.field(default=None, static=True)
    fused: bool = eqx.field(default=False, static=True, kw_only=True)

    def __check_init__(self):
        sizes.check(self, "width", "blocks")

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights: kernels truncated normal of variance 2/fan-in, with biases, beta and tau 0 and gamma 1."""
        convolution.check_images(x, self)
        inputs, stages = self.width, []
        for stage in range(_STAGES):
            channels = self.width * 2**stage
            stages.append([_block(inputs if i == 0 else channels, channels) for i in range(self.blocks)])
            inputs = channels
        shapes = {
            "conv": convolution.layer(3, 3, x.shape[-1], self.width),
            "norm": convolution.norm(self.width),
            "stages": stages,
            "linear": convolution.layer(inputs, sizes.outputs(self)),
        }
        return convolution.drawn(key, shapes, self.layout(shapes), gain=2.0)

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs (points, outputs)."""
        convolution.check_images(x, self)
        if self.fused:
            return convolution.dense(weights["linear"], self._fused(weights, x))
        z = jax.nn.silu(_normalised(weights["conv"], weights["norm"], x))
        for stage in weights["stages"]:
            for block in stage:
                z = residual(block, z)
        return convolution.dense(weights["linear"], jnp.mean(z, axis=(1, 2)))

    def _fused(self, weights: PyTree, x: Array) -> Array:
        from tunbridge.model.networks.fused import network as fused

        fused.check(weights, x)
        size, z = x.shape[1:3], fused.stem(weights, x)
        for stage in weights["stages"]:
            for block in stage:
                z = fused.block(size, block, z)
                size = (size[0] // 2, size[1] // 2) if "shortcut" in block else size
        return jnp.mean(z, axis=1)

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of kernels (height, width, in, out), the linear layer (in, out), biases and norms (out,)."""
        return convolution.layout(weights)

    def with_outputs(self, num: int) -> "ResNet20":
        """The same network with `num` outputs, if it left the number open."""
        return self if self.outputs is not None else dataclasses.replace(self, outputs=num)

    def normalised(self, weights: PyTree) -> list[tuple[str, str]]:
        """Paths of (kernel, bias) of every convolution whose channels are normalised next.

        Apart from the 1e-6 in the normalisation, the function does not depend on the joint norm of a filter and its
        bias.
        """
        kernels = [path for path, leaf in flatten_with_paths(weights) if len(leaf.shape) == 4]
        return [(path, f"{path.removesuffix('weight')}bias") for path in kernels]


def _block(inputs: int, outputs: int) -> PyTree:
    block = {
        "conv1": convolution.layer(3, 3, inputs, outputs),
        "norm1": convolution.norm(outputs),
        "conv2": convolution.layer(3, 3, outputs, outputs),
        "norm2": convolution.norm(outputs),
    }
    if inputs != outputs:
        block["shortcut"] = {"conv": convolution.layer(1, 1, inputs, outputs), "norm": convolution.norm(outputs)}
    return block


def residual(block: PyTree, x: Array) -> Array:
    """Apply a residual block to images (points, height, width, channels)."""
    stride = 2 if "shortcut" in block else 1
    y = jax.nn.silu(_normalised(block["conv1"], block["norm1"], x, stride))
    y = _normalised(block["conv2"], block["norm2"], y)
    if "shortcut" in block:
        x = _normalised(block["shortcut"]["conv"], block["shortcut"]["norm"], x, stride)
    return jax.nn.silu(x + y)


def _normalised(conv: PyTree, norm: PyTree, x: Array, stride: int = 1) -> Array:
    return convolution.frn(norm, convolution.convolve(conv, x, stride))
