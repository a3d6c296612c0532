"""A model at its mode: per-row gradients in the weights, and sums over the data block by block."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from tunbridge.core import keys
from tunbridge.core.blocks import blocks as row_blocks
from tunbridge.core.blocks import filled
from tunbridge.core.compiling import once
from tunbridge.core.data import Data, Stream, capacity_for
from tunbridge.core.declared import Module
from tunbridge.core.tree import by_shape, size
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.laplace.curvatures import Curvature, Outer
from tunbridge.model.model import Model
from tunbridge.model.networks.programs import sites as places
from tunbridge.model.networks.programs.evaluation import Evaluation
from tunbridge.model.networks.programs.sites import Sites
from tunbridge.model.subsets import Subset

_BLOCK_NUMBERS = 2**24
"""The most values that the gradients of a block of rows may hold."""
_MOST_ROWS = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """The weights that one block of a structure covers: some rows of a group's matrix, or weights by index."""

    index: np.ndarray
    """Flat indices of its weights: (inputs, outputs), or (weights,)."""
    group: int | None = None
    rows: slice = dataclasses.field(default_factory=lambda: slice(None))
    """The rows of the group's matrix that it covers."""


class RowGradients(NamedTuple):
    """The gradients of combinations of one row's outputs in the weights, stored by group."""

    activations: list[Array]
    cotangents: list[Array]
    rest: Array

    def matrix(self, part: Part) -> tuple[Array, Array]:
        """Return activations (positions, inputs) and cotangents (combinations, positions, outputs) of a part."""
        return self.activations[part.group or 0][:, part.rows], self.cotangents[part.group or 0]

    def rows(self, sites: Sites, index: np.ndarray, num: int) -> Array:
        """Return the gradients in the weights at these flat indices, (combinations, weights)."""
        place = np.full(num, -1)
        place[index] = np.arange(len(index))
        gradients = jnp.zeros((self.rest.shape[0], len(index)), self.rest.dtype)
        columns = place[sites.rest]
        gradients = gradients.at[:, columns[columns >= 0]].set(self.rest[:, columns >= 0])
        for group, a, g in zip(sites.groups, self.activations, self.cotangents, strict=True):
            columns = place[group.index.ravel()]
            if (columns >= 0).any():
                outer = jnp.einsum("pi,kpj->kij", a, g).reshape(len(g), -1)
                gradients = gradients.at[:, columns[columns >= 0]].set(outer[:, columns >= 0].astype(gradients.dtype))
        return gradients


class Local(Module):
    """A model at its mode, and which of its weights are random."""

    model: Model
    params: Params
    """Parameters with the network's own weights, not the prior's raw coordinates."""
    subset: Subset

    @staticmethod
    def at(model: Model, params: Params, subset: Subset) -> "Local":
        """Return the model at parameters given in the prior's raw coordinates."""
        return Local(model, params._replace(weights=_weights(model, params)), subset)

    @property
    def weights(self) -> PyTree:
        """The network's own weights."""
        return self.params.weights

    @property
    def size(self) -> int:
        """Number of weights."""
        return size(self.params.weights)

    @property
    def sites(self) -> Sites:
        """The places in the network's program where its weights are used."""
        return places.find(self.model.network.apply, self.params.weights, self.model.inputs)

    def variances(self, scales: PyTree) -> Array:
        """Return the prior variance of each weight at these scales, as one vector."""
        raw = self.model.prior.raw(self.weights, scales, layout := self.model.network.layout(self.params.weights))
        return ravel_pytree(self.model.prior.variances(raw, scales, layout))[0]

    def log_heights(self, scales: PyTree) -> Array:
        r"""Return :math:`\log(p(w) \sqrt{2 \pi V})` of each weight's prior at these scales, as one vector."""
        raw = self.model.prior.raw(self.weights, scales, layout := self.model.network.layout(self.params.weights))
        return ravel_pytree(self.model.prior.log_heights(raw, scales, layout))[0]

    def chosen(self, sites: Sites) -> np.ndarray:
        """Return a mask of the weights that are random."""
        return self.subset.chosen(self.params.weights, sites)

    def gradients(self, sites: Sites, x: Array, combine: Callable[[Array], Array]) -> tuple[Array, RowGradients]:
        """Return the outputs at one row, and the gradients of the (combinations, outputs) that `combine` gives."""
        evaluation = Evaluation(sites, self.weights, x)
        return evaluation.outputs, RowGradients(
            evaluation.activations, *evaluation.cotangents(combine(evaluation.outputs))
        )

    def curved(self, sites: Sites, curvature: Outer, key: Key, batch: Data) -> RowGradients:
        """Return each row's curvature columns pulled back to the weights, weighted, with a leading axis of rows."""
        likelihood, noise = self.model.likelihood, self.params.noise

        def pulled_back(key_row: Key, x: Array, y: Array, w: Array) -> RowGradients:
            def combine(outputs: Array) -> Array:
                return jnp.sqrt(w) * curvature.columns(key_row, likelihood, outputs[None], y[None], noise)[0].T

            return self.gradients(sites, x, combine)[1]

        return jax.vmap(pulled_back)(jax.random.split(key, batch.num), batch.x, batch.y, batch.weights)


@once
def _weights(model: Model, params: Params) -> PyTree:
    return model.weights(params)


def blocks(data: Data | Stream, most: int) -> Iterator[Data]:
    """Yield all rows once, in blocks of one size, padded with rows of weight 0."""
    if isinstance(data, Stream):
        for batch in data.batches(0):
            yield from blocks(batch, most)
        return
    num = min(most, capacity_for(data.num))
    weights = np.ones(data.num) if data.weight is None else np.asarray(data.weight)
    for rows in row_blocks(data.num, num):
        x, y = (filled(np.asarray(leaf)[rows], num) for leaf in (data.x, data.y))
        weight = np.zeros(num, jax.dtypes.canonicalize_dtype(float))
        weight[: rows.stop - rows.start] = weights[rows]
        yield data.with_rows(x, y, weight)


def summed(function: Callable, local: Local, data: Data | Stream, key: Key, numbers: int, *rest: Any) -> Any:
    """Return the sum of ``function(local, key, batch, *rest)`` over all rows, in float64.

    `numbers` is how many values the function makes per row, which limits the size of blocks.
    """
    most = int(np.clip(_BLOCK_NUMBERS // max(numbers, 1), 1, _MOST_ROWS))
    total = None
    for number, batch in enumerate(blocks(data, most)):
        part = jax.tree.map(
            lambda leaf: np.asarray(leaf, np.float64), function(local, keys.fold_in(key, number), batch, *rest)
        )
        total = part if total is None else jax.tree.map(np.add, total, part)
    return total


def scored(model: Model, data: Data | Stream) -> Data | Stream:
    """Return the rows with targets in the form that the likelihood scores."""
    if isinstance(data, Data):
        return Data(data.x, model.likelihood.check(data.y), data.weight)
    check = model.likelihood.check

    def make(epoch: int) -> Iterator[tuple[Any, ...]]:
        for batch in data.batches(epoch):
            weight = () if batch.weight is None else (batch.weight,)
            yield (batch.x, check(batch.y), *weight)

    return Data.from_batches(make, data.num)


@by_shape
def num_outputs(local: Local) -> int:
    """Number of outputs of the network."""
    return jax.eval_shape(local.model.outputs, local.params, local.model.example()).shape[-1]


@by_shape
def row_numbers(local: Local, curvature: Curvature, structure: Any) -> int:
    """Number of values that the gradients of one row hold, in the form that a structure uses."""
    columns = curvature.num_columns(num_outputs(local)) if isinstance(curvature, Outer) else 1
    sites = local.sites

    def row_gradients(local: Local, x: Array) -> RowGradients:
        return local.gradients(sites, x, lambda outputs: jnp.ones((columns, len(outputs)), outputs.dtype))[1]

    gradients = jax.eval_shape(row_gradients, local, local.model.inputs)
    groups = {part.group for part in structure.parts(local, sites) if part.group is not None}
    return size(([(gradients.activations[i], gradients.cotangents[i]) for i in groups], gradients.rest))
