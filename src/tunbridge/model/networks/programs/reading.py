"""Which weights act on the inputs and which on hidden units: read from the traced program, not from names."""

from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from tunbridge.core.types import Network, PyTree
from tunbridge.model.networks.programs.walking import walk

_INPUTS = "inputs"
"""The mark of values that depend on x."""


def reads_inputs(network: Network, weights: PyTree, x: Any, layout: PyTree) -> PyTree:
    """For each leaf, whether it multiplies x before any other weight has: True for the first layer.

    `weights` and `x` may be shapes. Biases, norms and embeddings on the way do not count as weights.
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (weights, x))
    program = jax.make_jaxpr(network.apply)(*shapes)
    leaves, treedef = jax.tree.flatten(weights)
    heavy = frozenset(i for i, leaf in enumerate(jax.tree.leaves(layout)) if leaf.role == "weight")
    marks = [frozenset([i]) for i in range(len(leaves))] + [frozenset([_INPUTS])]
    met: dict[int, bool] = {}
    _follow(program, marks, heavy, met)
    return jax.tree.unflatten(treedef, [met.get(i, False) for i in range(len(leaves))])


def _follow(program: ClosedJaxpr, marks: list[frozenset], heavy: frozenset, met: dict[int, bool]) -> list[frozenset]:
    """Carry marks through a program and record what each weight meets first; returns the marks of its results."""
    nothing: frozenset = frozenset()

    def equation(_: int, eqn: JaxprEqn, operands: list[frozenset]) -> list[frozenset]:
        num = len(eqn.outvars)
        if (inner := _inner(eqn.params)) is not None and len(inner.jaxpr.invars) == len(operands):
            return [*_follow(inner, operands, heavy, met), *[nothing] * num][:num]
        _meet(operands, heavy, met)
        return [nothing.union(*operands)] * num

    return walk(program, marks, equation, lambda _: nothing)


def _inner(params: dict) -> ClosedJaxpr | None:
    """The program that an equation calls (jit, scan, a custom derivative), if it calls one."""
    for value in params.values():
        if isinstance(value, ClosedJaxpr):
            return value
        if isinstance(value, Jaxpr) and not value.constvars:
            return ClosedJaxpr(value, ())
    return None


def _meet(operands: list[frozenset], heavy: frozenset, met: dict[int, bool]) -> None:
    """Record each weight that meets a value that depends on x for the first time."""
    for marks in operands:
        fresh = marks & heavy
        if len(marks) != 1 or not fresh or next(iter(marks)) in met:
            continue
        for other in operands:
            if _INPUTS in other:
                met[next(iter(marks))] = not (other & heavy)
