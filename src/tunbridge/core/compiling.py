"""How programs are compiled: quickly where they run once on few numbers, for speed where they run for long.

Most of a first fit is XLA's optimisation of machine code. On a CPU a program compiled without it takes a fifth of the
time to compile and several times as long to run.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

from tunbridge.core.tree import num_bytes

_MOST_KNOWN = 1000
"""Shapes that a function remembers."""
_FEW_BYTES = 2**18
"""Up to so many bytes of arguments, and of results, a program that runs once is not worth optimising."""


class once:
    """`jax.jit` of a function that a fit calls once or a few times.

    On a CPU, and while its arguments and results are small, it is compiled without optimisation. Which of the two
    programs serves a call depends on the shapes of its arguments alone.
    """

    def __init__(self, function: Callable, **settings: Any):
        functools.update_wrapper(self, function)
        self._plain: Any = jax.jit(function, **settings)
        self._quick: Callable[[], Any] = functools.cache(
            lambda: jax.jit(function, compiler_options=_options(), **settings)
        )
        self._small: dict[Any, bool] = {}

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
        leaves, structure = jax.tree.flatten((arguments, named))
        arrays = [leaf for leaf in leaves if hasattr(leaf, "dtype")]
        inside = any(isinstance(leaf, jax.core.Tracer) for leaf in arrays)
        if inside or jax.default_backend() != "cpu" or num_bytes(arrays) > _FEW_BYTES:
            return self._plain
        shapes = tuple((leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else leaf for leaf in leaves)
        if (name := (structure, shapes)) not in self._small:
            if len(self._small) >= _MOST_KNOWN:
                self._small.clear()
            self._small[name] = num_bytes(self._plain.eval_shape(*arguments, **named)) <= _FEW_BYTES
        return self._quick() if self._small[name] else self._plain


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
