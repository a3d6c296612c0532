"""LeNet-5, a small convolutional network."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks import sizes
from tunbridge.model.networks.architectures import convolution
from tunbridge.model.networks.architectures.mlp import ACTIVATIONS, check_activation

_SIDE = 32
"""Pixels along the side of a padded image."""


class LeNet5(Module):
    """Two convolutions and three dense layers for images of at most 32 x 32 pixels :cite:p:`lecun1998gradient`.

    6 and 16 filters of 5 x 5 pixels, each followed by the activation and 2 x 2 mean pooling, then 120 and 84 units and
    the outputs. Smaller images are padded with zeros to 32 x 32. For 28 x 28 grey pixels and 10 classes it has 61,706
    weights, ``{"convolutions": [...], "layers": [...]}``.

    Parameters
    ----------
    activation
        As for `MLP`.
    outputs
        Number of outputs; None takes what the likelihood needs.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> network, x = LeNet5(outputs=10), jnp.zeros((4, 28, 28, 1))
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (4, 10)
    """

    activation: str = eqx.field(default="tanh", static=True)
    outputs: int | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        check_activation(self.activation)
        sizes.check(self)

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights: truncated normal of variance 1/fan-in, with biases 0."""
        self._check(x)
        shapes = {
            "convolutions": [convolution.layer(5, 5, x.shape[-1], 6), convolution.layer(5, 5, 6, 16)],
            "layers": [convolution.layer(*pair) for pair in ((400, 120), (120, 84), (84, sizes.outputs(self)))],
        }
        return convolution.drawn(key, shapes, self.layout(shapes))

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs (points, outputs)."""
        self._check(x)
        phi = ACTIVATIONS[self.activation]
        edges = [((_SIDE - side) // 2, (_SIDE - side + 1) // 2) for side in x.shape[1:3]]
        z = jnp.pad(x, ((0, 0), *edges, (0, 0)))
        for layer in weights["convolutions"]:
            z = convolution.mean_pool(phi(convolution.convolve(layer, z, padding="VALID")), 2)
        *hidden, last = weights["layers"]
        z = z.reshape(len(z), -1)
        for layer in hidden:
            z = phi(convolution.dense(layer, z))
        return convolution.dense(last, z)

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of kernels (height, width, in, out), weights (in, out) and biases (out,)."""
        return convolution.layout(weights)

    def with_outputs(self, num: int) -> "LeNet5":
        """The same network with `num` outputs, if it left the number open."""
        return self if self.outputs is not None else dataclasses.replace(self, outputs=num)

    def _check(self, x: Array) -> None:
        convolution.check_images(x, self)
        if max(x.shape[1:3]) > _SIDE:
            raise InputError(
                f"images of at most {_SIDE} x {_SIDE} pixels for LeNet5",
                f"{x.shape[1]} x {x.shape[2]}",
                "Scale them down, or use ResNet20 or VGG.",
            )
