"""Weights of one function: hidden units in any order, each with its signs turned where the activation is odd.

A posterior under a prior that treats units alike repeats itself over all of these, h! 2^h times for h odd units, and
chains that agree about functions may sit in different copies. Weights are compared after the copies are made one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.model.networks.architectures.mlp import MLP

ODD = ("tanh", "erf", "sin", "identity")
"""Activations with phi(-a) = -phi(a)."""
_SWEEPS = 5
"""How often the layers of a deep network are matched in turn."""


def are_known(network: Any) -> bool:
    """Whether the symmetries of a network are written down: those of `MLP` are."""
    return isinstance(network, MLP)


_Layers = list[tuple[np.ndarray, np.ndarray]]
"""(weight, bias) of each layer of one network."""


def canonical(network: MLP, weights: PyTree) -> PyTree:
    """The one representative of all weights with the same function by symmetry, for draws with a leading axis.

    From the inputs on, each hidden unit gets the sign that makes the largest of its incoming weights and bias
    positive, where the activation is odd, and units are sorted by their first incoming weight, ties by the next. Two
    weights are copies of each other if and only if their representatives are equal. A draw whose sorted weights cross
    jumps to another order, so that for the mixing of chains `aligned` is the better choice.
    """
    return _each(network, weights, lambda layers: _sort(network, layers))


def aligned(network: MLP, weights: PyTree, reference: PyTree) -> PyTree:
    """Of each draw (a leading axis) the copy nearest to `reference`, by matching its hidden units to the reference's.

    The distance is Euclidean over a unit's incoming weights, bias and outgoing weights, and the matching an optimal
    assignment: exact for one hidden layer. More are matched from the inputs on by what enters their units, then in
    turn by everything until nothing changes (5 sweeps at most). All copies of a draw are mapped to one, each draw by
    itself, so what R-hat says of aligned weights is true of the posterior modulo symmetry. Units that the data hardly
    constrain remain interchangeable: their weights are order statistics.
    """
    fixed = [(np.asarray(layer["weight"]), np.asarray(layer["bias"])) for layer in reference["layers"]]
    return _each(network, weights, lambda layers: _match(network, layers, fixed))


def _each(network: MLP, weights: PyTree, change: Callable[[_Layers], _Layers]) -> PyTree:
    """`change` of each draw."""
    if not are_known(network):
        raise InputError("a network whose symmetries are known, an MLP", type(network).__name__, "Compare functions.")
    drawn = [(np.asarray(layer["weight"]), np.asarray(layer["bias"])) for layer in weights["layers"]]
    changed = [change([(weight[i], bias[i]) for weight, bias in drawn]) for i in range(len(drawn[0][0]))]
    layers = [
        {name: np.stack([draw[number][part] for draw in changed]) for part, name in enumerate(("weight", "bias"))}
        for number in range(len(drawn))
    ]
    return {"layers": layers}


def _sort(network: MLP, layers: _Layers) -> _Layers:
    for number in range(len(layers) - 1):
        unit = np.concatenate([layers[number][0], layers[number][1][None]])
        largest = unit[np.abs(unit).argmax(axis=0), np.arange(unit.shape[1])]
        sign = _signs((largest < 0) & (network.activation in ODD), unit.dtype)
        layers = _moved(layers, number, np.lexsort(tuple(unit[::-1] * sign[None])), sign)
    return layers


def _match(network: MLP, layers: _Layers, reference: _Layers) -> _Layers:
    hidden = range(len(layers) - 1)
    for number in hidden:
        layers = _match_layer(network, layers, reference, number, leaving=number == hidden[-1])
    for _ in range(_SWEEPS if len(hidden) > 1 else 0):
        before = layers
        for number in hidden:
            layers = _match_layer(network, layers, reference, number, leaving=True)
        if layers is before:
            break
    return layers


def _match_layer(network: MLP, layers: _Layers, reference: _Layers, number: int, *, leaving: bool) -> _Layers:
    from scipy.optimize import linear_sum_assignment

    odd = network.activation in ODD
    likeness = _units(reference, number, leaving) @ _units(layers, number, leaving).T
    rows, order = linear_sum_assignment(abs(likeness) if odd else likeness, maximize=True)
    sign = np.empty(len(order), likeness.dtype)
    sign[order] = _signs((likeness[rows, order] < 0) & odd, likeness.dtype)
    moves = (order != rows).any() or (sign < 0).any()
    return _moved(layers, number, order, sign) if moves else layers


def _signs(turned: np.ndarray, dtype: Any) -> np.ndarray:
    return np.where(turned, -1.0, 1.0).astype(dtype)


def _moved(layers: _Layers, number: int, order: np.ndarray, sign: np.ndarray) -> _Layers:
    """Units of a hidden layer with their signs turned, then in another order."""
    (entering, bias), (leaving, after) = layers[number : number + 2]
    entering, bias, leaving = (entering * sign[None])[:, order], (bias * sign)[order], (leaving * sign[:, None])[order]
    return [*layers[:number], (entering, bias), (leaving, after), *layers[number + 2 :]]


def _units(layers: _Layers, number: int, leaving: bool) -> np.ndarray:
    """A row for each unit of a hidden layer: what enters it, its bias, and what leaves it."""
    entering, bias = layers[number]
    return np.concatenate([entering.T, bias[:, None], *([layers[number + 1][0]] if leaving else [])], axis=1)
