"""Whether the flag that keeps sums right comes in time (test_canary.py computes one), and what is said if not."""

import os
import subprocess
import sys

import pytest

LATE = """
import jax
jax.numpy.zeros(3).block_until_ready()
"""
CHECK = """
import os, warnings
import tunbridge
from tunbridge.runtime import compiler
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    fuses = compiler._fuses()
    compiler.check()
    compiler.check()
print(fuses, len(told), "import tunbridge first" in str(told[0].message) if told else None, os.environ.get("XLA_FLAGS"))
"""
FLAG = "--xla_cpu_experimental_ynn_fusion_type="


def _checked(code, flags=None):
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)} | ({} if flags is None else {"XLA_FLAGS": flags})
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("first", ["", "import jax\n"])
def test_the_flag_is_in_time_before_jax_is_used(first):
    assert _checked(first + CHECK) == ["False", "0", "None", FLAG]


def test_flags_of_the_user_stay():
    assert _checked(CHECK, "--xla_cpu_max_isa=AVX2") == ["False", "0", "None", "--xla_cpu_max_isa=AVX2", FLAG]
    assert _checked(CHECK, f"{FLAG}LIBRARY_FUSION_TYPE_DOT")[-1] == f"{FLAG}LIBRARY_FUSION_TYPE_DOT"


def test_a_flag_that_came_too_late_is_told_and_taken_back():
    """Where the compiler fuses at all: jaxlib 0.10.1 does not fuse this sum."""
    fuses, *rest = _checked(LATE + CHECK)
    assert rest == (["1", "True", "None"] if fuses == "True" else ["0", "None", FLAG])
    assert _checked(LATE + CHECK, FLAG) == ["False", "0", "None", FLAG]
