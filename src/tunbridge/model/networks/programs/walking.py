"""A walk through a network's jaxpr, equation by equation, that propagates what is known of its values."""

from collections.abc import Callable, Sequence
from typing import Any

from jax import Array
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

REORDERINGS = (
    *("transpose", "reshape", "squeeze", "expand_dims", "broadcast_in_dim"),
    *("slice", "concatenate", "split", "rev", "copy"),
)
"""Equations whose results hold the entries of their operands in other places."""
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "checkpoint": "jaxpr", "remat2": "jaxpr"}
"""Equations that run another program, and the parameter that holds it."""


def walk(
    program: ClosedJaxpr,
    values: Sequence[Any],
    equation: Callable[[int, JaxprEqn, list[Any]], Sequence[Any]],
    constant: Callable[[Any], Any],
) -> list[Any]:
    """Return what is known of a program's results, given what is known of its operands.

    Parameters
    ----------
    program, values
        The program, and what is known of each of its operands.
    equation
        Function of an equation's index, the equation and what is known of its operands; returns what is known of its
        results.
    constant
        Function of a constant; returns what is known of it.
    """
    jaxpr = program.jaxpr
    constants = map(constant, program.consts)
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *values), strict=True))

    def read(atom: Any) -> Any:
        return constant(atom.val) if isinstance(atom, Literal) else known[atom]

    for number, eqn in enumerate(jaxpr.eqns):
        results = equation(number, eqn, [read(atom) for atom in eqn.invars])
        known.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def called(eqn: JaxprEqn) -> ClosedJaxpr:
    """The program that an equation of `CALLS` runs."""
    inner = eqn.params[CALLS[eqn.primitive.name]]
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


def constant_and_carried(eqn: JaxprEqn) -> tuple[int, int]:
    """Number of operands of a loop that stay constant, and of values that are carried from step to step.

    They are counted by shape, because versions of JAX name these numbers differently: all others have an axis of steps
    outside the loop that they lack inside.
    """
    inner = eqn.params["jaxpr"].jaxpr
    rows, results = (
        sum(len(outside.aval.shape) > len(inside.aval.shape) for outside, inside in zip(*pairs, strict=True))
        for pairs in ((eqn.invars, inner.invars), (eqn.outvars, inner.outvars))
    )
    carried = len(eqn.outvars) - results
    return len(eqn.invars) - rows - carried, carried


def bind(eqn: JaxprEqn, operands: list[Array]) -> list[Array]:
    """Evaluate an equation on other operands."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # jax before 0.10 gives both
    results = eqn.primitive.bind(*functions, *operands, **params)
    return results if eqn.primitive.multiple_results else [results]
