"""Symmetries of weights: permutations of hidden units, and flips of their signs where the activation is odd.

All of these give the same function. Under a prior that treats units alike, the posterior repeats itself over them,
h! 2^h times for h odd units, and chains that agree about functions may sit in different copies. Weights are therefore
mapped to one copy before they are compared.
"""

import itertools
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from tunbridge.core.declared import checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.model.networks.architectures.mlp import MLP

ODD = ("tanh", "erf", "sin", "identity")
"""Activations with phi(-a) = -phi(a)."""
_SWEEPS = 5
"""Maximum number of sweeps over the layers when units of a deep network are matched."""


def are_known(network: Any) -> bool:
    """Whether the symmetries of a network are implemented here: only those of `MLP` are."""
    return isinstance(network, MLP)


Known = Annotated[MLP, "The symmetries of other networks are not known: compare functions."]
_Layers = list[tuple[np.ndarray, np.ndarray]]
"""(weight, bias) of each layer of one network."""


@checked
def canonical(network: Known, weights: PyTree) -> PyTree:
    """Return one representative of all symmetric copies of the weights, for draws with a leading axis.

    From the inputs on, each hidden unit gets the sign that makes the largest of its incoming weights and bias
    positive, where the activation is odd, and units are sorted by their first incoming weight, ties by the next. Two
    weights are copies of each other if and only if their representatives are equal. When sorted weights cross from one
    draw to the next, the order jumps: to assess the mixing of chains, `aligned` is the better choice.
    """
    return _each(_layers(weights, "weights", 1), lambda layers: _sort(network, layers))


@checked
def aligned(network: Known, weights: PyTree, reference: PyTree) -> PyTree:
    """Return the copy of each draw (a leading axis) nearest to `reference`, by matching hidden units to its own.

    The distance is Euclidean over a unit's incoming weights, bias and outgoing weights, and the matching an optimal
    assignment: exact for one hidden layer. Several layers are matched from the inputs on by incoming weights, then
    one after another by all weights until nothing changes (5 sweeps at most). All copies of a draw are mapped to the
    same one, independently of other draws, so that R-hat of aligned weights is valid for the posterior modulo
    symmetry. Units that the data hardly constrain remain interchangeable: their weights are order statistics.
    """
    drawn, fixed = _layers(weights, "weights", 1), _layers(reference, "reference", 0)
    sizes, expected = ([part[0].shape[-2:] for part in layers] for layers in (fixed, drawn))
    if sizes != expected:
        raise InputError(f"a reference with layers {expected}", f"{sizes}", "Pass weights of the same network.")
    return _each(drawn, lambda layers: _match(network, layers, fixed))


def _layers(weights: PyTree, name: str, lead: int) -> _Layers:
    """Arrays of each layer of an MLP's weights with `lead` leading axes; InputError if they are of anything else."""
    try:
        arrays = [(np.asarray(layer["weight"]), np.asarray(layer["bias"])) for layer in dict(weights)["layers"]]
        draws = {part.shape[:lead] for pair in arrays for part in pair}
        widths = [(weight.shape[lead:], bias.shape[lead:]) for weight, bias in arrays]
        fits = all(weight[1:] == bias and len(weight) == 2 for weight, bias in widths)
        fits &= all(first[0][1] == second[0][0] for first, second in itertools.pairwise(widths))
        fits &= len(draws) == 1 and 0 not in draws.pop()
        fits &= all(np.issubdtype(part.dtype, np.floating) for pair in arrays for part in pair)
    except (TypeError, ValueError, KeyError, IndexError):
        fits = False
    if not fits:
        axes = "with an axis of draws first" if lead else "of one draw"
        raise InputError(f"{name} of an MLP, {axes}", type(weights).__name__, 'Pass {"layers": [{"weight", "bias"}]}.')
    return arrays


def _each(drawn: _Layers, change: Callable[[_Layers], _Layers]) -> PyTree:
    """Apply `change` to each draw."""
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


def _signs(flipped: np.ndarray, dtype: Any) -> np.ndarray:
    return np.where(flipped, -1.0, 1.0).astype(dtype)


def _moved(layers: _Layers, number: int, order: np.ndarray, sign: np.ndarray) -> _Layers:
    """Flip the signs of a hidden layer's units, then reorder them."""
    (entering, bias), (leaving, after) = layers[number : number + 2]
    entering, bias, leaving = (entering * sign[None])[:, order], (bias * sign)[order], (leaving * sign[:, None])[order]
    return [*layers[:number], (entering, bias), (leaving, after), *layers[number + 2 :]]


def _units(layers: _Layers, number: int, leaving: bool) -> np.ndarray:
    """One row per unit of a hidden layer: incoming weights, bias and, if `leaving`, outgoing weights."""
    entering, bias = layers[number]
    return np.concatenate([entering.T, bias[:, None], *([layers[number + 1][0]] if leaving else [])], axis=1)
