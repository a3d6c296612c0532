"""Every test: rank promotion raises (a silent (n,) against (n, 1) is this field's classic bug), warnings are errors.

Compiling is most of what tests cost, so programs are compiled quickly, not for speed (`optimised` is for tests that run
them for long), and kept where the command line keeps its own: workers, processes that tests start and later runs
share them.
"""

import gc
import os
from importlib.metadata import version

import jax
import matplotlib
import pytest
import threadpoolctl

from memory import bound_memory
from tunbridge.runtime import programs

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if version("jaxlib") < "0.11":  # later ones have no other way to emit loops
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] += " --xla_cpu_parallel_codegen_split_count=1"  # there is a worker per core already
programs.keep_in_processes()
programs.keep()
matplotlib.use("Agg")
threadpoolctl.threadpool_limits(1)  # a worker per core: LAPACK's threads would wait for each other
_QUICKLY = os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1"
jax.config.update("jax_disable_most_optimizations", _QUICKLY)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_traceback_in_locations_limit", 0)  # lines of source in programs that nobody reads


gc.disable()  # nothing that is imported goes away


def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(
        50_000, 20, 50
    )  # tracing makes many objects, and JAX has work to do whenever they are looked through
    gc.enable()


@pytest.fixture(autouse=True)
def _bounded_memory():
    yield
    bound_memory()


@pytest.fixture(autouse=True)
def _optimised(request):
    """Programs of a test marked `optimised` are compiled for speed, as a user's are."""
    wanted = request.node.get_closest_marker("optimised") is not None
    if wanted:
        jax.config.update("jax_disable_most_optimizations", False)
    yield
    if wanted:
        jax.config.update("jax_disable_most_optimizations", _QUICKLY)


@pytest.fixture
def key():
    return jax.random.key(20261115)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def compiled():
    """The programs that XLA compiled or fetched since the list was cleared."""
    found = []

    def listen(name, *_, fun_name="", **__):
        if name.endswith("backend_compile_duration"):
            found.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)
