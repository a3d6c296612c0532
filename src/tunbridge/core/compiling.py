"""How programs are compiled: quickly where they run once on few numbers, for speed where they run for long.

Most of a first fit is XLA's optimisation of machine code. On a CPU a program compiled without it takes a fifth of the
time to compile and several times as long to run.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

from tunbridge.core.tree import num_bytes

_FEW_BYTES = 2**18
"""Up to so many bytes of arguments a program that runs once is not worth optimising."""


class once:
    """`jax.jit` of a function that a fit calls once or a few times.

    On a CPU, and while its arguments are small, it is compiled without optimisation. Which of the two programs serves a
    call depends on the shapes of its arguments alone.
    """

    def __init__(self, function: Callable, **settings: Any):
        functools.update_wrapper(self, function)
        self._plain: Any = jax.jit(function, **settings)
        self._quick: Callable[[], Any] = functools.cache(
            lambda: jax.jit(function, compiler_options=_options(), **settings)
        )

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function's value."""
        return self._chosen(arguments, named)(*arguments, **named)

    def lower(self, *arguments: Any, **named: Any) -> Any:
        """The program for these arguments, before it is compiled."""
        return self._chosen(arguments, named).lower(*arguments, **named)

    def num_programs(self) -> int:
        """How many programs it has."""
        return self._plain._cache_size() + self._quick()._cache_size()

    def _chosen(self, arguments: tuple, named: dict[str, Any]) -> Any:
        leaves = [leaf for leaf in jax.tree.leaves((arguments, named)) if hasattr(leaf, "dtype")]
        inside = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        if inside or jax.default_backend() != "cpu" or num_bytes(leaves) > _FEW_BYTES:
            return self._plain
        return self._quick()


@functools.cache
def _options() -> dict[str, bool | int]:
    """What XLA is told to compile quickly; newer versions have no other way to emit loops."""
    options: dict[str, bool | int] = {"xla_backend_optimization_level": 0}
    older: dict[str, bool | int] = {**options, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x, compiler_options=older).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return options
    return older
