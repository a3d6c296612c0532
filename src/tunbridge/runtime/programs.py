"""Compiled programs, kept on disk for the next process.

The folder is ``~/.cache/tunbridge/<JAX version>-<kind of processor>``: a program of one processor may hold instructions
that another lacks, and JAX does not tell them apart. JAX_COMPILATION_CACHE_DIR, or JAX's own configuration, names
another; TUNBRIDGE_CACHE=0 keeps nothing. Nothing here imports JAX before it is needed.
"""

import contextlib
import ctypes
import functools
import gc
import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

from tunbridge.core.errors import InputError

_SWITCH = "TUNBRIDGE_CACHE"
_FOLDER, _LEAST = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
_LEVEL, _FATAL = "TF_CPP_MIN_LOG_LEVEL", 3
_FEATURES, _MAPS = Path("/proc/cpuinfo"), Path("/proc/self/maps")
_MOST_MAPS = 16_000
"""A quarter of what Linux allows a process; about 1 GB of programs."""
_JAX_LEAST = 1.0
"""Seconds of compilation from which JAX keeps a program, unless told."""


def silence_loader() -> None:
    """Leave out XLA's lines about errors, unless the user has set a level; before JAX is loaded.

    On x86-64 its loader writes one for each program that it reads: it takes preferences such as prefer-no-gather for
    features that the processor lacks. Errors that matter are raised.
    """
    if "jax" not in sys.modules:
        os.environ.setdefault(_LEVEL, str(_FATAL))


def keep_in_processes() -> None:
    """Keep programs in this process and in those that it starts, by the environment; before JAX is loaded."""
    if _FOLDER not in os.environ and (folder := _folder()) is not None:
        os.environ[_FOLDER] = str(folder)
    os.environ.setdefault(_LEAST, "0")


def keep() -> None:
    """Keep programs from now on, unless the user has said where, or not to."""
    import jax

    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache or (folder := _folder()) is None:
        return
    config.update("jax_compilation_cache_dir", str(folder))
    if config.jax_persistent_cache_min_compile_time_secs == _JAX_LEAST:
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if os.environ.get(_LEVEL) == "1":  # JAX's own, where it was imported first; jaxlib has read it
        with contextlib.suppress(ImportError, AttributeError):  # a later jaxlib may not have this
            from jaxlib import utils

            utils.absl_set_min_log_level(_FATAL)


def bound() -> None:
    """Forget compiled programs where they hold many of the memory maps that a process may have; the folder keeps them.

    A process that fits for ever, to tables of ever new shapes, would otherwise end when it can have no more.
    """
    if _num_maps() > _MOST_MAPS:
        forget()


def forget() -> None:
    """Forget all compiled programs, and hand their memory back to the system."""
    import jax

    jax.clear_caches()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc keeps what was freed
        ctypes.CDLL(None).malloc_trim(0)


def _num_maps() -> int:
    """How many memory maps this process has, where the system says so: a few for each program."""
    try:
        return _MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0


def refuse_fork() -> None:
    """InputError in a fork of a process that had fitted, where JAX has lost its threads and would hang."""
    global _used
    if _forked:
        raise InputError(
            "a process that was spawned",
            "one forked from a process that had fitted, in which JAX would wait for ever",
            'Start it with multiprocessing.get_context("spawn"), or fit in it alone.',
        )
    _used = True


def _note_fork() -> None:
    global _forked
    _forked = _used


_used, _forked = False, False
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def settle_order() -> None:
    """Let numpyro's distributions be flattened in one order by every process, so that their programs are found again.

    numpyro (0.22) takes the order of a set of names, which differs from process to process. Nothing is changed where it
    has been imported: what was flattened in one order must not be put together in another.
    """
    if "numpyro" in sys.modules:
        return
    from numpyro.distributions import Distribution

    if not hasattr(Distribution, "gather_pytree_data_fields"):  # a later numpyro may not have this
        return
    fields = Distribution.gather_pytree_data_fields.__func__
    Distribution.gather_pytree_data_fields = classmethod(lambda cls: tuple(sorted(fields(cls))))


@functools.cache
def _folder() -> Path | None:
    """Where programs of this machine are kept; None where they are not, or cannot be."""
    if os.environ.get(_SWITCH) == "0":
        return None
    from importlib.metadata import version

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "tunbridge" / f"{version('jax')}-{_processor()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _processor() -> str:
    """Twelve digits that tell kinds of processors apart: the instructions that they have."""
    features = platform.processor()
    with contextlib.suppress(OSError), _FEATURES.open(encoding="utf-8", errors="replace") as lines:
        features = next((line for line in lines if line.startswith(("flags", "Features"))), features)
    words = " ".join([platform.machine(), *sorted(set(features.split()))])
    return hashlib.sha256(words.encode()).hexdigest()[:12]
