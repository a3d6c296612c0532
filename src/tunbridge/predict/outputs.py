"""The outputs of many networks at many points, computed in blocks."""

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import Array

from tunbridge.core.blocks import blocks, blockwise, filled
from tunbridge.core.compiling import once
from tunbridge.core.types import Network, Params, PyTree
from tunbridge.model.model import Model

_BLOCK_NUMBERS = 2**22
"""The largest number of elements in a block of outputs."""
_BLOCK_ROWS = 2**14
"""The most rows evaluated at once: hidden layers are wider than inputs and outputs."""
_TOGETHER = 32
"""The most networks that an accelerator evaluates at once."""
_CACHE_NUMBERS = 2**24
"""Outputs of at most this many elements are cached."""


class Outputs:
    """Outputs (components, points, outputs) of a model with stacked parameters.

    They are computed lazily (parameters too, where a function returns them), unless they are `known`, or are columns of
    other outputs (`within`: those outputs and the slice of columns), or concatenate several others (`joined`). With a
    `centre` the network is linearised around it.
    """

    def __init__(
        self,
        model: Model,
        params: Params | Callable[[], Params],
        x: np.ndarray,
        known: Array | np.ndarray | None = None,
        within: "tuple[Outputs, slice] | None" = None,
        centre: Params | None = None,
        joined: "tuple[Outputs, ...]" = (),
    ):
        self.model, self.x, self.centre = model, x, centre
        self._params = params
        self._cached, self._within, self._joined = known, within, joined

    @property
    def params(self) -> Params:
        """Stacked parameters, drawn on first access."""
        if not isinstance(self._params, Params):
            self._params = self._params()
        return self._params

    @property
    def num_components(self) -> int:
        """Number of networks."""
        return self._size[0]

    @property
    def num_outputs(self) -> int:
        """Number of outputs of each network."""
        return self._size[1]

    @cached_property
    def _size(self) -> tuple[int, int]:
        """Numbers of components and outputs."""
        if self._within is not None:
            outer, columns = self._within
            return outer.num_components, columns.stop - columns.start
        if self._joined:
            return sum(part.num_components for part in self._joined), self._joined[0].num_outputs
        outputs = self._cached
        if outputs is None:
            _ = self.params  # draw them here, not while shapes are traced
            outputs = jax.eval_shape(self._forward, self.x[:1])
        return outputs.shape[0], outputs.shape[-1]

    @staticmethod
    def join(parts: "list[Outputs]") -> "Outputs":
        """Concatenate the components of several outputs."""
        noise = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(part.params.noise for part in parts))
        return Outputs(parts[0].model, Params((), (), noise), parts[0].x, joined=tuple(parts))

    def answer(self, question: Callable, *rows: Any, common: tuple = (), cost: int = 1) -> Any:
        """Evaluate ``question(likelihood, outputs, noise, *common, *rows)`` for all points, block by block.

        `question` takes outputs (components, block, outputs) and returns arrays with leading axis block; it must be a
        function defined once, so that it compiles once. `rows` have leading axis points. `cost` is the number of
        elements it computes per output.
        """
        num = len(self.x)
        width = self.num_components * self.num_outputs
        size = _rows(num, max(1, _BLOCK_NUMBERS // (width * cost)))

        def block(span: slice, fill: Callable) -> Any:
            outputs, filled_rows = self._block(span.start, span.stop, size), [fill(row[span]) for row in rows]
            return _ask(question, self.model.likelihood, outputs, self.params.noise, *common, *filled_rows)

        return jax.device_put(blockwise(block, num, size))

    def task(self, number: int) -> "Outputs":
        """The outputs of one task of a `MultiTask` likelihood, by its number."""
        likelihood: Any = self.model.likelihood
        model = dataclasses.replace(self.model, likelihood=likelihood.tasks[number])
        noise = self.params.noise[number] if self.params.noise else ()
        stop = sum(likelihood.outputs[: number + 1])
        columns = slice(stop - likelihood.outputs[number], stop)
        return Outputs(model, self.params._replace(noise=noise), self.x, within=(self, columns))

    def _block(self, start: int, stop: int, size: int) -> Any:
        if self._within is not None:
            outer, columns = self._within
            return outer._block(start, stop, size)[..., columns]
        if self._joined:
            return np.concatenate([part._block(start, stop, size) for part in self._joined])
        if self._cached is None and len(self.x) * self.num_components * self.num_outputs > _CACHE_NUMBERS:
            return self._forward(filled(self.x[start:stop], size))
        if self._cached is None:
            parts = self._forward_blocks()
            self._cached = np.concatenate(parts, axis=1)
        outputs = np.asarray(self._cached)[:, start:stop]
        return outputs if stop - start == size else np.pad(outputs, ((0, 0), (0, size - stop + start), (0, 0)), "edge")

    def _forward_blocks(self) -> list[np.ndarray]:
        features = math.prod(self.x.shape[1:])
        size = _rows(len(self.x), max(1, _BLOCK_NUMBERS // features))
        row_blocks = blocks(len(self.x), size)
        return [
            np.asarray(self._forward(filled(self.x[rows], size)))[:, : rows.stop - rows.start] for rows in row_blocks
        ]

    def _forward(self, x: Any) -> Array:
        if self.centre is None:
            return _forward(self.model, self.params, x)
        return _linear(self.model, self.centre, self.params, x)


@once
def _forward(model: Model, params: Params, x: Array) -> Array:
    """Outputs (components, points, outputs) of a model with stacked parameters."""
    return _one_by_one(lambda component: model.outputs(component, x), params)


def forward(network: Network, weights: PyTree, x: Array) -> Array:
    """Outputs (components, points, outputs) of networks with stacked weights."""
    if jax.tree.leaves(weights)[0].shape[0] == 1:
        return network.apply(jax.tree.map(lambda leaf: leaf[0], weights), x)[None]
    return _one_by_one(lambda component: network.apply(component, x), weights)


def _one_by_one(function: Callable[[PyTree], Array], stacked: PyTree) -> Array:
    """Map over networks: one after another on a CPU, up to 32 at once elsewhere."""
    num = jax.tree.leaves(stacked)[0].shape[0]
    together = 1 if jax.default_backend() == "cpu" else min(num, _TOGETHER)
    return jax.lax.map(function, stacked, batch_size=together)


@once
def _linear(model: Model, centre: Params, params: Params, x: Array) -> Array:
    """Outputs of the network linearised at c, f(c) + J (w - c), for each component's w."""
    outputs, jvp = jax.linearize(lambda raw: model.outputs(centre._replace(weights=raw), x), centre.weights)
    steps = jax.tree.map(lambda leaf, centre_leaf: leaf - centre_leaf[None], params.weights, centre.weights)
    return _one_by_one(lambda step: outputs + jvp(step), steps)


def _asked(question: Callable, likelihood: Any, outputs: Array, noise: PyTree, *rows: Any) -> Any:
    return question(likelihood, outputs, noise, *rows)


_ask = once(_asked, static_argnums=0)


def _rows(num: int, most: int) -> int:
    """Number of rows per block, for `num` rows in all.

    Sizes are powers of two from 64 to 1,024, then multiples of 1,024, so that few programs are compiled for tables of
    any length. In blocks of the same size a row's result is bit-identical whatever the other rows; between block sizes
    it agrees to rounding.
    """
    size = max(64, 1 << (num - 1).bit_length()) if num <= 1024 else -(-num // 1024) * 1024
    return min(size, _BLOCK_ROWS, most)
