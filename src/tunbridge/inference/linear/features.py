"""Features of a network: the inputs of its last layer; and a check that outputs are linear in that layer."""

import dataclasses
import operator
from collections.abc import Callable, Iterator
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from tunbridge.core import blocks
from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError
from tunbridge.core.types import Params, PyTree
from tunbridge.inference.linear.moments import Moments
from tunbridge.model.model import Model
from tunbridge.model.networks.programs import sites as places
from tunbridge.model.networks.programs.evaluation import Evaluation
from tunbridge.model.networks.programs.sites import Sites
from tunbridge.model.subsets import LastLayer

_BLOCK_NUMBERS = 2**23
"""The most feature values that a block of rows may hold."""
_MOST_ROWS = 4096
_TRIED = (-100.0, -1.0, 1.0, 100.0)
"""Factors by which a random last layer is multiplied when outputs are compared with the linear formula."""


@dataclasses.dataclass(frozen=True, eq=False)
class Layer:
    """The last layer among a network's groups of weights."""

    sites: Sites
    number: int

    @property
    def index(self) -> np.ndarray:
        """Flat index of each of its weights, (features, outputs); the last feature may be the constant."""
        return self.sites.groups[self.number].index


def last(model: Model, weights: PyTree) -> Layer:
    """Return the last layer, found from the network's program; InputError if there is none."""
    sites = places.find(model.network.apply, weights, model.inputs)
    if not sites.groups:
        raise _not_linear("a network without a weight matrix of its own")
    chosen = LastLayer().chosen(weights, sites)
    return Layer(sites, next(i for i, group in enumerate(sites.groups) if chosen[group.index].all()))


def prior_variances(model: Model, params: Params) -> Array:
    """Prior variances of the last layer's weights, (features, outputs)."""
    layout = model.network.layout(params.weights)
    variances = model.prior.variances(params.weights, params.scales, layout)
    return ravel_pytree(variances)[0][last(model, params.weights).index]


@jax.jit
def values(model: Model, weights: PyTree) -> Array:
    """The weights of the last layer, (features, outputs)."""
    return ravel_pytree(weights)[0][last(model, weights).index]


def with_layer(weights: PyTree, index: np.ndarray, values: Array) -> PyTree:
    """Return the weights with the last layer replaced by `values`."""
    flat, unravel = ravel_pytree(weights)
    return unravel(flat.at[index].set(values.astype(flat.dtype)))


@jax.jit
def evaluate(model: Model, weights: PyTree, x: Array) -> tuple[Array, Array]:
    """Return outputs (rows, outputs) and features (rows, positions, features), in one pass through the network."""
    layer = last(model, weights)

    def evaluate_row(row: Array) -> tuple[Array, Array]:
        evaluation = Evaluation(layer.sites, weights, row)
        return evaluation.outputs, evaluation.activations[layer.number]

    return jax.vmap(evaluate_row)(x)


def blockwise(function: Callable[[np.ndarray], tuple[Array, ...]], x: np.ndarray, width: int) -> list[np.ndarray]:
    """Evaluate a function of rows, which makes `width` values per row, in blocks of a few sizes."""
    most = int(np.clip(_BLOCK_NUMBERS // width, 1, _MOST_ROWS))
    size = min(most, blocks.few_sizes(len(x), 8))
    return list(blocks.blockwise(lambda rows, fill: tuple(function(fill(np.asarray(x[rows])))), len(x), size))


def gather(model: Model, weights: PyTree, data: Data | Stream) -> Moments:
    """Return the sums over all rows, of features and of targets less what does not depend on the last layer."""
    batches = data.batches(0) if isinstance(data, Stream) else [data]
    return reduce(operator.add, (part for batch in batches for part in _blocks(model, weights, batch)))


def _blocks(model: Model, weights: PyTree, data: Data) -> Iterator[Moments]:
    layer = np.asarray(values(model, weights), np.float64)
    y = np.asarray(model.likelihood.check(data.y), np.float64)
    weight = np.ones(data.num) if data.weight is None else np.asarray(data.weight)
    for rows in blocks.blocks(data.num, _MOST_ROWS):
        evaluated = blockwise(partial(evaluate, model, weights), np.asarray(data.x)[rows], len(layer))
        outputs, phi = evaluated[0].astype(np.float64), evaluated[1][:, 0].astype(np.float64)
        yield Moments.of(phi, y[rows] - (outputs - phi @ layer), weight[rows])


def check_linear(model: Model, weights: PyTree, x: np.ndarray) -> None:
    """Raise InputError unless outputs are features times the last layer, plus what does not depend on it."""
    index = last(model, weights).index
    outputs, features = jax.eval_shape(partial(evaluate, model), weights, x)
    if features.shape[1] != 1 or index.shape[1] != outputs.shape[1]:
        raise _not_linear(f"a last weight matrix used {features.shape[1]} times for {outputs.shape[1]} outputs")
    direction = np.random.default_rng(0).normal(size=index.shape) / np.sqrt(len(index))
    zero, _ = evaluate(model, with_layer(weights, index, jnp.zeros(index.shape)), x)
    for factor in _TRIED:
        layer = jnp.asarray(factor * direction)
        actual, phi = (np.asarray(part, np.float64) for part in evaluate(model, with_layer(weights, index, layer), x))
        expected = np.asarray(zero, np.float64) + phi[:, 0] @ (factor * direction)
        if not np.allclose(actual, expected, rtol=0.0, atol=1e-2 * np.abs(expected).max()):
            raise _not_linear("a last layer that something follows, or that is also used elsewhere")


def _not_linear(got: str) -> InputError:
    return InputError(
        "a network whose outputs are its last layer's, a matrix and a bias",
        got,
        "End the network in a dense layer, or use tb.Laplace(subset=tb.subsets.LastLayer()).",
    )
