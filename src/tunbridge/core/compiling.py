"""How programs are compiled: without optimisation where they run once on small arrays, optimised where they run long.

Most of the time of a first fit is XLA's optimisation of machine code. On a CPU a program compiled without it takes a
fifth of the time to compile and several times as long to run.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

from tunbridge.core.tree import num_bytes

_MOST_KNOWN = 1000
"""Combinations of argument shapes that a function remembers."""
_FEW_BYTES = 2**18
"""A program that runs once is not worth optimising if its arguments, and its results, take at most this many bytes."""


class once:
    """`jax.jit` for a function that a fit calls only once or a few times.

    On a CPU, with small arguments and results, the function is compiled without optimisation; otherwise as by
    `jax.jit`. Which of the two programs serves a call depends only on the shapes of its arguments.
    """

    def __init__(self, function: Callable, **settings: Any):
        functools.update_wrapper(self, function)
        self._plain: Any = jax.jit(function, **settings)
        self._quick: Callable[[], Any] = functools.cache(
            lambda: jax.jit(function, compiler_options=_options(), **settings)
        )
        self._small: dict[Any, bool] = {}

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function, compiled for the shapes of these arguments."""
        return self._chosen(arguments, named)(*arguments, **named)

    def lower(self, *arguments: Any, **named: Any) -> Any:
        """Lower the function for these arguments, as `jax.jit(function).lower` does."""
        return self._chosen(arguments, named).lower(*arguments, **named)

    def num_programs(self) -> int:
        """Number of compiled programs that the function holds."""
        return self._plain._cache_size() + self._quick()._cache_size()

    def _chosen(self, arguments: tuple, named: dict[str, Any]) -> Any:
        leaves, structure = jax.tree.flatten((arguments, named))
        arrays = [leaf for leaf in leaves if hasattr(leaf, "dtype")]
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in arrays)
        if traced or jax.default_backend() != "cpu" or num_bytes(arrays) > _FEW_BYTES:
            return self._plain
        shapes = tuple((leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else leaf for leaf in leaves)
        if (signature := (structure, shapes)) not in self._small:
            if len(self._small) >= _MOST_KNOWN:
                self._small.clear()
            self._small[signature] = num_bytes(self._plain.eval_shape(*arguments, **named)) <= _FEW_BYTES
        return self._quick() if self._small[signature] else self._plain


@functools.cache
def _options() -> dict[str, bool | int]:
    """XLA options for quick compilation; newer versions reject the switch of fusion emitters, so it is left out."""
    options: dict[str, bool | int] = {"xla_backend_optimization_level": 0}
    older: dict[str, bool | int] = {**options, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x, compiler_options=older).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return options
    return older
