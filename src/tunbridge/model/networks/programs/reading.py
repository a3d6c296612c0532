"""Which weights meet the inputs themselves, and which the hidden units: read from the program, not from names."""

from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from tunbridge.core.types import Network, PyTree

_INPUTS = "inputs"
"""The mark of whatever depends on x."""


def reads_inputs(network: Network, weights: PyTree, x: Any, layout: PyTree) -> PyTree:
    """For each leaf, whether it multiplies x before any other weight has: True for the first layer.

    `weights` and `x` may be shapes. Biases, norms and embeddings on the way do not count as weights.
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (weights, x))
    program = jax.make_jaxpr(network.apply)(*shapes).jaxpr
    leaves, treedef = jax.tree.flatten(weights)
    heavy = frozenset(i for i, leaf in enumerate(jax.tree.leaves(layout)) if leaf.role == "weight")
    marks = [frozenset([i]) for i in range(len(leaves))] + [frozenset([_INPUTS])]
    met: dict[int, bool] = {}
    _follow(program, marks, heavy, met)
    return jax.tree.unflatten(treedef, [met.get(i, False) for i in range(len(leaves))])


def _follow(program: Jaxpr, marks: list[frozenset], heavy: frozenset, met: dict[int, bool]) -> list[frozenset]:
    """Carry marks through a program, and note what each weight meets first. Gives the marks of its results."""
    known: dict[Any, frozenset] = dict(zip(program.invars, marks, strict=True))

    def mark(variable: Any) -> frozenset:
        return frozenset() if isinstance(variable, Literal) else known.get(variable, frozenset())

    for equation in program.eqns:
        operands = [mark(variable) for variable in equation.invars]
        if (inner := _inner(equation.params)) is not None and len(inner.invars) == len(operands):
            results = _follow(inner, operands, heavy, met)
        else:
            _meet(operands, heavy, met)
            results = [frozenset().union(*operands)] * len(equation.outvars)
        known.update(zip(equation.outvars, results, strict=False))
    return [mark(variable) for variable in program.outvars]


def _inner(params: dict) -> Jaxpr | None:
    """The program that an equation calls (jit, scan, a custom derivative), if it calls one."""
    for value in params.values():
        if isinstance(value, ClosedJaxpr):
            return value.jaxpr
        if isinstance(value, Jaxpr):
            return value
    return None


def _meet(operands: list[frozenset], heavy: frozenset, met: dict[int, bool]) -> None:
    """A weight that has touched nothing yet meets something that depends on x."""
    for own in operands:
        fresh = own & heavy
        if len(own) != 1 or not fresh or next(iter(own)) in met:
            continue
        for other in operands:
            if _INPUTS in other:
                met[next(iter(own))] = not (other & heavy)
