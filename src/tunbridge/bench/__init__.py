"""Methods against the truth and against each other."""

from tunbridge.bench.beliefs import Beliefs, Ranking, Sensitivity, prior_predictive, rank_priors, sensitivity
from tunbridge.bench.compare import Comparison, compare
from tunbridge.bench.exact import PROBLEMS, Problem
from tunbridge.bench.models import ModelRanking, rank_models
from tunbridge.bench.processes import ExactProcess, FittedProcess, SparseProcess, WideKernel, wide_kernel
from tunbridge.bench.promises import PROMISES, Promise, deviation
from tunbridge.bench.reference import (
    Reference,
    ReferenceError,
    fidelity,
    load_reference,
    make_reference,
    references,
)
from tunbridge.bench.sbc import sbc

__all__ = [
    "PROBLEMS",
    "PROMISES",
    "Beliefs",
    "Comparison",
    "ExactProcess",
    "FittedProcess",
    "ModelRanking",
    "Problem",
    "Promise",
    "Ranking",
    "Reference",
    "ReferenceError",
    "Sensitivity",
    "SparseProcess",
    "WideKernel",
    "compare",
    "deviation",
    "fidelity",
    "load_reference",
    "make_reference",
    "prior_predictive",
    "rank_models",
    "rank_priors",
    "references",
    "sbc",
    "sensitivity",
    "wide_kernel",
]
