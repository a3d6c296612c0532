"""The outputs of many networks at many points, block by block."""

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
"""How many numbers a block of outputs may hold."""
_BLOCK_ROWS = 2**14
"""How many rows go through the network at once: its hidden layers are wider than its ends."""
_TOGETHER = 32
"""How many networks an accelerator evaluates at once."""
_CACHE_NUMBERS = 2**24
"""Up to this size all outputs are kept once computed."""


class Outputs:
    """Outputs (components, points, outputs) of a model with stacked parameters.

    They are computed when asked for (parameters too, where a function gives them), or `known`, or some columns of
    others: `within` is these others, and which. With a `centre` the network is taken for linear around it. `joined` are
    several others, one after another.
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
        """Stacked parameters, drawn when they are first asked for."""
        if not isinstance(self._params, Params):
            self._params = self._params()
        return self._params

    @property
    def num_components(self) -> int:
        """How many networks there are."""
        return self._size[0]

    @property
    def num_outputs(self) -> int:
        """Of each."""
        return self._size[1]

    @cached_property
    def _size(self) -> tuple[int, int]:
        """How many components there are, and outputs."""
        if self._within is not None:
            whole, own = self._within
            return whole.num_components, own.stop - own.start
        if self._joined:
            return sum(part.num_components for part in self._joined), self._joined[0].num_outputs
        like = self._cached
        if like is None:
            _ = self.params  # drawn here, not while shapes are traced
            like = jax.eval_shape(self._forward, self.x[:1])
        return like.shape[0], like.shape[-1]

    @staticmethod
    def join(parts: "list[Outputs]") -> "Outputs":
        """The components of several, one after another."""
        noise = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(part.params.noise for part in parts))
        return Outputs(parts[0].model, Params((), (), noise), parts[0].x, joined=tuple(parts))

    def answer(self, question: Callable, *rows: Any, common: tuple = (), cost: int = 1) -> Any:
        """The rows of ``question(likelihood, outputs, noise, *common, *rows)``, block by block.

        `question` sees outputs (components, block, outputs) and gives arrays with leading axis block; it is a
        function defined once, so that it compiles once. `rows` have leading axis points. `cost` is how many numbers
        it makes of each output.
        """
        num = len(self.x)
        width = self.num_components * self.num_outputs
        size = _rows(num, max(1, _BLOCK_NUMBERS // (width * cost)))

        def block(own: slice, fill: Callable) -> Any:
            outputs, parts = self._block(own.start, own.stop, size), [fill(row[own]) for row in rows]
            return _ask(question, self.model.likelihood, outputs, self.params.noise, *common, *parts)

        return jax.device_put(blockwise(block, num, size))

    def task(self, number: int) -> "Outputs":
        """The part of one task, by its number, of a `MultiTask` likelihood."""
        likelihood: Any = self.model.likelihood
        model = dataclasses.replace(self.model, likelihood=likelihood.tasks[number])
        noise = self.params.noise[number] if self.params.noise else ()
        stop = sum(likelihood.outputs[: number + 1])
        own = slice(stop - likelihood.outputs[number], stop)
        return Outputs(model, self.params._replace(noise=noise), self.x, within=(self, own))

    def _block(self, start: int, stop: int, size: int) -> Any:
        if self._within is not None:
            whole, own = self._within
            return whole._block(start, stop, size)[..., own]
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
        own = blocks(len(self.x), size)
        return [np.asarray(self._forward(filled(self.x[rows], size)))[:, : rows.stop - rows.start] for rows in own]

    def _forward(self, x: Any) -> Array:
        if self.centre is None:
            return _forward(self.model, self.params, x)
        return _linear(self.model, self.centre, self.params, x)


@once
def _forward(model: Model, params: Params, x: Array) -> Array:
    """Outputs (components, points, outputs)."""
    return _one_by_one(lambda one: model.outputs(one, x), params)


def forward(network: Network, weights: PyTree, x: Array) -> Array:
    """Outputs (components, points, outputs) of networks with stacked weights."""
    if jax.tree.leaves(weights)[0].shape[0] == 1:
        return network.apply(jax.tree.map(lambda leaf: leaf[0], weights), x)[None]
    return _one_by_one(lambda one: network.apply(one, x), weights)


def _one_by_one(function: Callable[[PyTree], Array], stacked: PyTree) -> Array:
    """A network after another on a CPU, all at once elsewhere."""
    num = jax.tree.leaves(stacked)[0].shape[0]
    together = 1 if jax.default_backend() == "cpu" else min(num, _TOGETHER)
    return jax.lax.map(function, stacked, batch_size=together)


@once
def _linear(model: Model, centre: Params, params: Params, x: Array) -> Array:
    """The same of the network's linearisation: f(c) + J (w - c) for each component's w."""
    outputs, along = jax.linearize(lambda raw: model.outputs(centre._replace(weights=raw), x), centre.weights)
    away = jax.tree.map(lambda many, one: many - one[None], params.weights, centre.weights)
    return _one_by_one(lambda step: outputs + along(step), away)


def _asked(question: Callable, likelihood: Any, outputs: Array, noise: PyTree, *rows: Any) -> Any:
    return question(likelihood, outputs, noise, *rows)


_ask = once(_asked, static_argnums=0)


def _rows(num: int, most: int) -> int:
    """How many rows a block has, for `num` in all.

    A few sizes, so that a few programs serve tables of any length: powers of two from 64, from 1,024 on its multiples.
    In blocks of one size a row's answer is the same to the bit whatever its company, in others the same to rounding.
    """
    size = max(64, 1 << (num - 1).bit_length()) if num <= 1024 else -(-num // 1024) * 1024
    return min(size, _BLOCK_ROWS, most)
