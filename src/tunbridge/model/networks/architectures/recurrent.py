"""A network that reads sequences of tokens."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks import sizes
from tunbridge.model.networks.architectures import convolution
from tunbridge.model.networks.architectures.mlp import ACTIVATIONS, check_activation
from tunbridge.model.networks.layout import Leaf


class CNNLSTM(Module):
    r"""An embedding, a convolution, and a long short-term memory :cite:p:`hochreiter1997long` for sequences of tokens.

    The text network of :cite:t:`izmailov2021what`. The convolution is unpadded, and followed by the activation and by
    max pooling over `pool` positions. The memory reads the result in order,

    .. math::

        (i, g, f, o) = z_t W + h_{t-1} U + b, \quad
        c_t = \sigma(f + 1) c_{t-1} + \sigma(i) \tanh g, \quad
        h_t = \sigma(o) \tanh c_t,

    and the outputs are linear in its last state *h*. Inputs are tokens (points, length), whole numbers from 0 to below
    `vocabulary`; any other number makes the outputs NaN.

    Parameters
    ----------
    vocabulary
        Number of different tokens.
    embedding
        Dimension of the embedding.
    filters, window
        Number of filters of the convolution, and of tokens that each sees.
    pool
        Number of positions pooled into one; 1 leaves them as they are.
    cells
        Size of the memory's state.
    activation
        Activation after the convolution; as for `MLP`.
    outputs
        Number of outputs; None takes what the likelihood needs.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> network, x = CNNLSTM(vocabulary=50, embedding=4, outputs=2), jnp.zeros((3, 20), int)
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (3, 2)
    """

    vocabulary: int = eqx.field(default=20_000, static=True)
    embedding: int = eqx.field(default=128, static=True)
    filters: int = eqx.field(default=64, static=True)
    window: int = eqx.field(default=5, static=True)
    pool: int = eqx.field(default=4, static=True)
    cells: int = eqx.field(default=128, static=True)
    activation: str = eqx.field(default="relu", static=True)
    outputs: int | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        check_activation(self.activation)
        sizes.check(self, "vocabulary", "embedding", "filters", "window", "pool", "cells")

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights: truncated normal of variance 1 for embeddings and 1/fan-in for others, with biases 0."""
        self._check(x)
        shapes = {
            "embedding": _unbiased(self.vocabulary, self.embedding),
            "conv": convolution.layer(self.window, self.embedding, self.filters),
            "lstm": {
                "inputs": convolution.layer(self.filters, 4 * self.cells),
                "state": _unbiased(self.cells, 4 * self.cells),
            },
            "linear": convolution.layer(self.cells, sizes.outputs(self)),
        }
        return convolution.drawn(key, shapes, self.layout(shapes))

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs (points, outputs)."""
        self._check(x)
        z = jnp.take(weights["embedding"]["weight"], x, axis=0)
        z = ACTIVATIONS[self.activation](convolution.convolve(weights["conv"], z, padding="VALID"))
        return convolution.dense(weights["linear"], lstm(weights["lstm"], convolution.max_pool(z, self.pool, "VALID")))

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of the table (tokens, out), the kernel (length, in, out), weights (in, out) and biases (out,)."""
        table = {"weight": Leaf("embedding", inputs=(0,), outputs=(1,))}
        return {**convolution.layout(weights), "embedding": table}

    def with_outputs(self, num: int) -> "CNNLSTM":
        """The same network with `num` outputs, if it left the number open."""
        return self if self.outputs is not None else dataclasses.replace(self, outputs=num)

    def _check(self, x: Array) -> None:
        if x.ndim != 2 or not jnp.issubdtype(x.dtype, jnp.integer):
            raise InputError(
                "x of tokens, whole numbers of shape (points, length), for CNNLSTM",
                f"{x.dtype} of shape {x.shape}",
                "Number the tokens, and cut or pad the sequences to one length.",
            )
        least = self.window + self.pool - 1
        if x.shape[1] < least:
            raise InputError(f"sequences of at least {least} tokens", f"{x.shape[1]}", "Pad them.")


def _unbiased(*shape: int) -> PyTree:
    return {"weight": convolution.layer(*shape)["weight"]}


def lstm(weights: PyTree, x: Array) -> Array:
    """Last state (points, cells) of a long short-term memory that reads x (points, length, features)."""
    drive = jnp.moveaxis(convolution.dense(weights["inputs"], x), 1, 0)

    def step(carry: tuple[Array, Array], row: Array) -> tuple[tuple[Array, Array], None]:
        h, c = carry
        i, g, f, o = jnp.split(row + h @ weights["state"]["weight"], 4, axis=-1)
        c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    start = jnp.zeros((x.shape[0], weights["state"]["weight"].shape[0]), drive.dtype)
    (h, _), _ = lax.scan(step, (start, start), drive)
    return h
