"""Compiled programs, kept on disk for the next process.

The folder is ``~/.cache/tunbridge/<JAX version>-<kind of processor>``: a program for one processor may hold
instructions that another lacks, and JAX does not distinguish them. JAX_COMPILATION_CACHE_DIR, or JAX's own
configuration, names another folder; TUNBRIDGE_CACHE=0 keeps nothing. JAX is not imported before it is needed.
"""

import contextlib
import ctypes
import functools
import gc
import hashlib
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tunbridge.core.errors import InputError

_SWITCH = "TUNBRIDGE_CACHE"
_FOLDER, _LEAST = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
_LEVEL, _JAX_LEVEL, _FATAL = "TF_CPP_MIN_LOG_LEVEL", "1", 3
"""The variable of XLA's log level, what JAX sets it to when it is imported, and the level of silence."""
_FEATURES, _MAPS = Path("/proc/cpuinfo"), Path("/proc/self/maps")
_MOST_MAPS = 12_000
"""A fifth of the memory maps that Linux allows a process; about 1 GB of programs."""
_JAX_LEAST = 1.0
"""JAX's default: programs are kept if compilation took at least this many seconds."""
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def silence_loader() -> None:
    """Silence XLA's error log, unless the user has set a log level; call it before JAX is imported.

    On x86-64 XLA's loader logs an error for each program that it reads, because it mistakes preferences such as
    prefer-no-gather for features that the processor lacks. Errors that matter are raised as exceptions. A level of 1
    comes from JAX: a process that has imported it passes the variable on to the processes that it starts.
    """
    if "jax" not in sys.modules and os.environ.get(_LEVEL, _JAX_LEVEL) == _JAX_LEVEL:
        os.environ[_LEVEL] = str(_FATAL)


def keep_in_processes() -> None:
    """Keep programs of this process and its child processes, by environment variables; call before importing JAX."""
    if _FOLDER not in os.environ and (folder := _folder()) is not None:
        os.environ[_FOLDER] = str(folder)
    os.environ.setdefault(_LEAST, "0")


def keep() -> None:
    """Keep programs on disk from here on, unless the user has set another folder or disabled the cache.

    XLA's error log is silenced in either case, as by `silence_loader`.
    """
    import jax

    if os.environ.get(_LEVEL) == _JAX_LEVEL:  # JAX was imported before Tunbridge, and jaxlib has read the variable
        with contextlib.suppress(ImportError, AttributeError):  # a later jaxlib may not have this
            from jaxlib import utils

            utils.absl_set_min_log_level(_FATAL)
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache or (folder := _folder()) is None:
        return
    config.update("jax_compilation_cache_dir", str(folder))
    if config.jax_persistent_cache_min_compile_time_secs == _JAX_LEAST:
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def bound() -> None:
    """Free compiled programs if they hold many of the memory maps that a process may have; the folder keeps them.

    A process that goes on fitting, to tables of ever new shapes, would otherwise run out of memory maps.
    """
    if _num_maps() > _MOST_MAPS:
        forget()


def forget() -> None:
    """Free all compiled programs and return their memory to the system."""
    import jax

    jax.clear_caches()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc holds on to freed memory
        ctypes.CDLL(None).malloc_trim(0)


def _num_maps() -> int:
    """Number of memory maps of this process, a few per program; 0 where the system does not report it."""
    try:
        return _MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0


def refuse_fork() -> None:
    """InputError in a process forked from one that had computed: JAX has lost its threads there and would hang."""
    global _used
    if _forked:
        raise InputError(
            "a process that was spawned",
            "one forked from a process that had fitted or predicted, in which JAX would hang",
            'Start it with multiprocessing.get_context("spawn"), or fit and predict in it alone.',
        )
    _used = True


def unforked(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """Decorate a function that computes with JAX: it calls `refuse_fork` first."""

    @functools.wraps(function)
    def call(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        refuse_fork()
        return function(*args, **kwargs)

    return call


def _note_fork() -> None:
    global _forked
    _forked = _used


_used, _forked = False, False
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def settle_order() -> None:
    """Make every process flatten numpyro's distributions in the same order, so that kept programs are found again.

    numpyro (0.22) uses the order of a set of names, which differs between processes. If numpyro is already imported,
    nothing is changed: what was flattened in one order must not be unflattened in another.
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
    """The folder for programs of this machine; None if the cache is disabled or the folder cannot be written to."""
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
    """Twelve hexadecimal digits that identify a kind of processor: a hash of its instruction sets."""
    features = platform.processor()
    with contextlib.suppress(OSError), _FEATURES.open(encoding="utf-8", errors="replace") as lines:
        features = next((line for line in lines if line.startswith(("flags", "Features"))), features)
    words = " ".join([platform.machine(), *sorted(set(features.split()))])
    return hashlib.sha256(words.encode()).hexdigest()[:12]
