"""Methods against the truth and against each other."""

from tunbridge.bench.compare import Comparison, compare
from tunbridge.bench.exact import PROBLEMS, Problem
from tunbridge.bench.processes import ExactProcess, FittedProcess, SparseProcess, WideKernel, wide_kernel
from tunbridge.bench.promises import PROMISES, Promise, deviation
from tunbridge.bench.reference import Reference, ReferenceError, fidelity, load_reference, make_reference
from tunbridge.bench.sbc import sbc

__all__ = [
    "PROBLEMS",
    "PROMISES",
    "Comparison",
    "ExactProcess",
    "FittedProcess",
    "Problem",
    "Promise",
    "Reference",
    "ReferenceError",
    "SparseProcess",
    "WideKernel",
    "compare",
    "deviation",
    "fidelity",
    "load_reference",
    "make_reference",
    "sbc",
    "wide_kernel",
]
