r"""XLA's compiler for CPUs, kept from a fusion that gives wrong numbers.

jaxlib 0.11.1 to 0.12.0 fuse sums with what surrounds them into calls of YNNPACK, which scales an array in place that
others still read. :math:`\sum_n (x_n^2 - \log c e^t) + \log e^t`, a normal likelihood beside a prior on its noise, is
then off by :math:`\log c` (tests/test_canary.py). JAX is not imported before it is needed.
"""

import functools
import os
import sys
import warnings

_FLAGS, _FUSION = "XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type"
_late = list[str | None]()
"""The flags before ours, if JAX had been imported by then; whether it had been used too is not known."""


def settle() -> None:
    """Disable the fusion by XLA_FLAGS, unless the user has set that flag; call it before JAX is used."""
    given = os.environ.get(_FLAGS)
    if _FUSION in (given or ""):
        return
    os.environ[_FLAGS] = f"{given or ''} {_FUSION}=".strip()
    if "jax" in sys.modules:
        _late.append(given)


@functools.cache
def check() -> None:
    """Warn once per process if JAX had been used before Tunbridge was imported, so that the flag came too late."""
    if not _late or not _fuses():
        return
    if _late[0] is None:  # JAX's cache tells programs apart by the flags that it finds here
        del os.environ[_FLAGS]
    else:
        os.environ[_FLAGS] = _late[0]
    warnings.warn(
        "JAX was used before Tunbridge was imported, and its compiler for CPUs gives wrong sums in some programs: "
        f"import tunbridge first, or set {_FLAGS}={_FUSION}= for the process.",
        RuntimeWarning,
        stacklevel=3,
    )


def _fuses() -> bool:
    import jax
    import jax.numpy as jnp

    if jax.default_backend() != "cpu":
        return False
    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    program = jax.jit(lambda x: jnp.sum(x * x, axis=0)).lower(shape).compile()
    return "ynn" in (program.as_text() or "")
