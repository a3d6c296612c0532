"""Maximise the evidence over the parameters of a kernel and the noise."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree

_SPREAD = 1.0
"""Standard deviation of the restarts around the initial values, in log units."""
_FAR = 12.0
"""Bounds of the search around the initial values, in log units."""
_MOST_STEPS = 100


def positive_leaves(tree: PyTree, refuse: bool = True) -> PyTree:
    """Convert the floats of a tree to float64 arrays; raise InputError if one is not positive and `refuse` is set."""
    numbers, rest = eqx.partition(tree, eqx.is_inexact_array_like)
    numbers = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), numbers)
    if refuse and not all((leaf > 0).all() for leaf in jax.tree.leaves(numbers)):
        raise InputError(
            "positive numbers to start from",
            "some that are not",
            "Use positive ones, or tune=False.",
        )
    return eqx.combine(numbers, rest)


def maximise(evidence: Callable, start: tuple[Any, Any], rows: Any, key: Key, restarts: int) -> Any:
    """Return the (kernel, noise) of largest evidence that L-BFGS finds from `start` and `restarts` points around it."""
    numbers, rest = eqx.partition(start, eqx.is_inexact_array_like)
    flat, unravel = ravel_pytree(jax.tree.map(jnp.log, numbers))

    def whole(logs: Any) -> Any:
        return eqx.combine(jax.tree.map(jnp.exp, unravel(logs)), rest)

    @jax.jit
    def cost(logs, rows):
        return jax.value_and_grad(lambda logs: -evidence(*whole(logs), rows))(logs)

    def finite(logs: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = cost(logs, rows)
        bad = not np.isfinite(value) or not np.isfinite(gradient).all()
        return (1e10, np.zeros_like(logs)) if bad else (float(value), np.asarray(gradient))

    origin = np.asarray(flat)
    jumps = _SPREAD * np.asarray(jax.random.normal(key, (restarts, len(origin))))
    bounds = [(middle - _FAR, middle + _FAR) for middle in origin]
    results = [
        minimize(finite, origin + jump, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _MOST_STEPS})
        for jump in [np.zeros_like(origin), *jumps]
    ]
    best = min(results, key=lambda result: result.fun)
    return jax.tree.map(lambda leaf: np.asarray(leaf) if eqx.is_array(leaf) else leaf, whole(best.x))
