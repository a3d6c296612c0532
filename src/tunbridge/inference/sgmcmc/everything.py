"""Gradients and densities of all rows, computed block by block, for use between minibatch steps."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tunbridge.core.data import Data, Stream
from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.model.model import Target

_BLOCK = 8192
"""Largest number of rows in a block."""


class Everything(Module):
    """The whole data set in blocks of rows, the last padded with rows that do not count."""

    blocks: Data
    num: int = eqx.field(static=True)

    @staticmethod
    def of(data: Data | Stream, needed_by: str) -> "Everything":
        """The rows in blocks; InputError for a stream."""
        if isinstance(data, Stream):
            raise InputError(
                f"all rows in memory, which {needed_by} needs", "a stream of batches", "Pass tb.Data, or leave it out."
            )
        num = data.num
        count = -(-num // _BLOCK)
        size = -(-num // count)
        rows = jnp.arange(count * size)
        filled = jax.tree.map(lambda leaf: leaf[rows % num], data).where(rows < num)
        return Everything(jax.tree.map(lambda leaf: leaf.reshape(count, size, *leaf.shape[1:]), filled), num)

    def log_likelihood(self, target: Target, params: Params) -> Scalar:
        """Log likelihood of all rows."""
        return self._summed(lambda block: self._share(target, params, block))

    def log_density(self, target: Target, params: Params) -> Scalar:
        """Log posterior of all rows, tempered and up to a constant."""
        return target.log_posterior(self.log_likelihood(target, params), params)

    def gradient(self, target: Target, params: Params) -> tuple[Scalar, PyTree]:
        """Tempered log likelihood of all rows, and its gradient."""

        def tempered(params: Params, block: Data) -> Scalar:
            return self._share(target, params, block) / target.temperature

        return self._summed(lambda block: jax.value_and_grad(tempered)(params, block))

    def _share(self, target: Target, params: Params, block: Data) -> Scalar:
        """Contribution of a block to the log likelihood."""
        return target.log_likelihood(params, block) * (self.blocks.x.shape[1] / target.num)

    def _summed(self, function: Callable[[Data], Any]) -> Any:
        """Sum over all blocks of a function of a block."""
        like = jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[0], self.blocks))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        return jax.lax.scan(
            lambda total, block: (jax.tree.map(jnp.add, total, function(block)), None), nothing, self.blocks
        )[0]

    def some(self, key: Key, size: int) -> Data:
        """`size` rows drawn at random with replacement, independently of all earlier draws."""
        rows = jax.random.randint(key, (size,), 0, self.num)
        width = self.blocks.x.shape[1]
        return jax.tree.map(lambda leaf: leaf[rows // width, rows % width], self.blocks)
