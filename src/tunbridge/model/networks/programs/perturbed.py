r"""Networks with random weights: noise enters where weights meet data.

With independent normal weights :math:`w \sim N(\mu, \sigma^2)` the result of a matrix product is itself normal,
:math:`N(a \mu, a^2 \sigma^2)`, and can be drawn independently for every row (`Local`); or each row flips the signs of
one shared deviation at random (`Flipped`). Both follow the means and the deviations of weights through the network's
program side by side, as long as they are only reordered, up to the product.
"""

import abc
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, JaxprEqn

from tunbridge.core.random import fold_in, normal, split
from tunbridge.core.tree import size, unravel
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks.programs.sites import Sites
from tunbridge.model.networks.programs.walking import CALLS, REORDERINGS, bind, called, constant_and_carried, walk

Pair = tuple[Array, Array | None]
"""A value and, if it is random weights, their variances or deviation; else None."""


def eligible(sites: Sites, like: PyTree, *, once: bool) -> tuple[bool, ...]:
    """Which leaves are used only in a single product or convolution and its bias; with `once`, at a single position.

    A weight used at several positions of one row correlates their outputs, which independent noise per position would
    ignore.
    """
    chosen = np.zeros(size(like), bool)
    for group in sites.groups:
        (place, *others) = group.places
        site = sites.found[place]
        positions = site.columns(np.empty(site.shape[site.depth :], bool)).shape[0]
        if site.kind != "gather" and not others and not (once and (site.depth or positions > 1)):
            chosen[group.index] = True
    return tuple(bool(np.all(leaf)) for leaf in jax.tree.leaves(unravel(like, chosen)))


class Perturbed(abc.ABC):
    """Runs a network's program with noise in its weights.

    Parameters
    ----------
    program
        The network's program, a function of weights and inputs.
    key
        Random key of the noise.
    """

    def __init__(self, program: ClosedJaxpr, key: Key):
        self.program, self.key = program, key

    @abc.abstractmethod
    def meet(self, eqn: JaxprEqn, operands: list[Array], side: int, beside: Array, key: Key) -> Array:
        """Result of an equation whose operand `side` is random weights, with `beside` their variances or deviation."""

    def outputs(self, weights: PyTree, beside: PyTree, x: Array) -> Array:
        """The network's outputs; leaves of `beside` are None where weights are not random."""
        pairs = list(zip(jax.tree.leaves(weights), beside, strict=True))
        ((outputs, _),) = self._run(self.program, [*pairs, (x, None)], self.key)
        return outputs

    def _run(self, program: ClosedJaxpr, pairs: list[Pair], key: Key) -> list[Pair]:
        def equation(number: int, eqn: JaxprEqn, operands: list[Pair]) -> list[Pair]:
            return self._equation(eqn, operands, fold_in(key, number))

        return walk(program, pairs, equation, lambda value: (value, None))

    def _equation(self, eqn: JaxprEqn, pairs: list[Pair], key: Key) -> list[Pair]:
        values, name = [value for value, _ in pairs], eqn.primitive.name
        spread = [(number, beside) for number, (_, beside) in enumerate(pairs) if beside is not None]
        if not spread:
            return [(value, None) for value in bind(eqn, values)]
        if name in CALLS:
            return self._run(called(eqn), pairs, key)
        if name == "scan":
            return self._loop(eqn, pairs, key)
        if name in (*REORDERINGS, "convert_element_type"):
            besides = bind(eqn, [beside if beside is not None else jnp.zeros_like(value) for value, beside in pairs])
            return list(zip(bind(eqn, values), besides, strict=True))
        ((side, beside),) = spread
        return [(self.meet(eqn, values, side, beside, key), None)]

    def _loop(self, eqn: JaxprEqn, pairs: list[Pair], key: Key) -> list[Pair]:
        (num, carried), inner = constant_and_carried(eqn), eqn.params["jaxpr"]
        carry, rows = ([value for value, _ in part] for part in (pairs[num : num + carried], pairs[num + carried :]))

        def step(carry: list[Array], row: list[Array]) -> tuple[list[Array], list[Array]]:
            varying = [(value, None) for value in (*carry, *row)]
            results = [value for value, _ in self._run(inner, [*pairs[:num], *varying], key)]
            return results[:carried], results[carried:]

        settings = {"length": eqn.params["length"], "reverse": eqn.params["reverse"]}
        carry, results = jax.lax.scan(step, carry, rows, **settings)
        return [(value, None) for value in (*carry, *results)]


class Local(Perturbed):
    """Draws each product from its mean and variance :cite:p:`kingma2015variational`; `beside` holds variances.

    The program may take many rows at once.
    """

    def meet(self, eqn: JaxprEqn, operands: list[Array], side: int, beside: Array, key: Key) -> Array:
        r"""Return :math:`a \mu + \sqrt{a^2 \sigma^2} \, \varepsilon`."""
        (mean,) = bind(eqn, operands)
        other = _other(eqn, operands[1 - side], jnp.square)
        (variance,) = bind(eqn, [beside, other] if side == 0 else [other, beside])
        tiny = jnp.finfo(variance.dtype).tiny  # the derivative of the root at 0 is infinite
        return mean + jnp.sqrt(jnp.maximum(variance, tiny)) * normal(key, mean.shape, mean.dtype)


class Flipped(Perturbed):
    """Flips the signs of one shared deviation :cite:p:`wen2018flipout`; `beside` holds the deviation.

    The program takes one row.
    """

    def meet(self, eqn: JaxprEqn, operands: list[Array], side: int, beside: Array, key: Key) -> Array:
        r"""Return :math:`a \mu + ((a \circ s) \Delta) \circ r` with signs s of the inputs, r of the outputs."""
        (mean,) = bind(eqn, operands)
        data = operands[1 - side]
        inputs, outputs = _axes(eqn, side, data.ndim, mean.ndim)
        key_inputs, key_outputs = split(key, 2)
        other = _other(eqn, data, lambda data: data * _signs(key_inputs, data, inputs))
        (moved,) = bind(eqn, [beside, other] if side == 0 else [other, beside])
        return mean + moved * _signs(key_outputs, mean, outputs)


def _other(eqn: JaxprEqn, data: Array, change: Callable[[Array], Array]) -> Array:
    """The data that `beside` acts on: transformed by `change` in a product, 0 where a bias is added."""
    return jnp.zeros_like(data) if eqn.primitive.name == "add" else change(data)


def _axes(eqn: JaxprEqn, side: int, rank: int, rank_out: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of the data that run over inputs, and those of the results that run over outputs."""
    if eqn.primitive.name == "add":
        return (), (rank_out - 1,)
    numbers = eqn.params["dimension_numbers"]
    if eqn.primitive.name == "conv_general_dilated":
        return (numbers.lhs_spec[1],), (numbers.out_spec[1],)
    contracted, _ = numbers
    free = rank - len(contracted[1 - side])
    outputs = range(free, rank_out) if side == 1 else range(rank_out - free)
    return tuple(contracted[1 - side]), tuple(outputs)


def _signs(key: Key, like: Array, axes: tuple[int, ...]) -> Array:
    """Random signs along some axes, the same along the others."""
    shape = [like.shape[axis] if axis in axes else 1 for axis in range(like.ndim)]
    return jax.random.rademacher(key, shape, like.dtype)
