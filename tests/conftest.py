"""Every test: rank promotion raises (a silent (n,) against (n, 1) is this field's classic bug), warnings are errors.

Compiled programs are kept in .cache/jax, so that workers, processes that tests start and later runs share them.
"""

import os
from pathlib import Path

import jax
import matplotlib
import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
matplotlib.use("Agg")
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_numpy_rank_promotion", "raise")
_MOST_BYTES = 1.2e9


@pytest.fixture(autouse=True, scope="module")
def _bounded_memory():
    """A worker forgets compiled programs when they fill more than its share; the folder keeps them."""
    yield
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    if pages * os.sysconf("SC_PAGE_SIZE") > _MOST_BYTES:
        jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(20261115)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield
