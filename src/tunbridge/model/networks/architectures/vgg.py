"""Plain deep networks of small convolutions."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks import sizes
from tunbridge.model.networks.architectures import convolution

_STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Number of convolutions before each pool, by depth."""
_CHANNELS = (64, 128, 256, 512, 512)


class VGG(Module):
    """3 x 3 convolutions with ReLU, and max pooling between stages :cite:p:`simonyan2015very`, as used for CIFAR.

    Five stages of 64, 128, 256, 512 and 512 channels, each followed by 2 x 2 max pooling; then the mean over all
    remaining positions, and one linear layer in place of the three for large images. Nothing is normalised. Weights are
    ``{"stages": [[...], ...], "linear": {...}}``.

    Parameters
    ----------
    depth
        11, 13, 16 or 19: the number of layers that the network would have with three linear ones.
    width
        Factor that multiplies the numbers of channels.
    outputs
        Number of outputs; None takes what the likelihood needs.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> network, x = VGG(depth=11, width=1 / 16, outputs=10), jnp.zeros((2, 8, 8, 3))
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (2, 10)
    """

    depth: int = eqx.field(default=19, static=True)
    width: float = eqx.field(default=1.0, static=True, converter=float)
    outputs: int | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        sizes.check(self)
        if self.depth not in _STAGES:
            raise InputError(f"a depth of {', '.join(map(str, _STAGES))}", repr(self.depth), "Choose one of these.")
        if not self.width * _CHANNELS[0] >= 1:
            raise InputError("a width that leaves a channel, 1/64 or more", repr(self.width), "Choose a larger one.")

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights: kernels truncated normal of variance 2/fan-in, with biases 0."""
        convolution.check_images(x, self)
        inputs, stages = x.shape[-1], []
        for num, full in zip(_STAGES[self.depth], _CHANNELS, strict=True):
            channels = int(full * self.width)
            stages.append([convolution.layer(3, 3, channels if i else inputs, channels) for i in range(num)])
            inputs = channels
        shapes = {"stages": stages, "linear": convolution.layer(inputs, sizes.outputs(self))}
        return convolution.drawn(key, shapes, self.layout(shapes), gain=2.0)

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs (points, outputs)."""
        convolution.check_images(x, self)
        z = x
        for stage in weights["stages"]:
            for layer in stage:
                z = jax.nn.relu(convolution.convolve(layer, z))
            z = convolution.max_pool(z, 2)
        return convolution.dense(weights["linear"], jnp.mean(z, axis=(1, 2)))

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of kernels (height, width, in, out), the linear layer (in, out) and biases (out,)."""
        return convolution.layout(weights)

    def with_outputs(self, num: int) -> "VGG":
        """The same network with `num` outputs, if it left the number open."""
        return self if self.outputs is not None else dataclasses.replace(self, outputs=num)
