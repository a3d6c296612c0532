"""Methods against the truth and against each other."""

from tunbridge.bench.beliefs import Beliefs, Ranking, Sensitivity, prior_predictive, rank_priors, sensitivity
from tunbridge.bench.budget import Budget
from tunbridge.bench.compare import Comparison, compare
from tunbridge.bench.exact import PROBLEMS, Problem
from tunbridge.bench.models import ModelRanking, rank_models
from tunbridge.bench.processes import ExactProcess, FittedProcess, SparseProcess, WideKernel, wide_kernel
from tunbridge.bench.promises import PROMISES, Promise, deviation
from tunbridge.bench.reference import Reference, ReferenceError, fidelity, load_reference, make_reference
from tunbridge.bench.runner import Job, Tally, plan, run
from tunbridge.bench.sbc import sbc
from tunbridge.bench.store import Store
from tunbridge.bench.suites import SUITES
from tunbridge.bench.task import Held, Rows, Task
from tunbridge.bench.tuning import GRIDS

__all__ = [
    "GRIDS",
    "PROBLEMS",
    "PROMISES",
    "SUITES",
    "Beliefs",
    "Budget",
    "Comparison",
    "ExactProcess",
    "FittedProcess",
    "Held",
    "Job",
    "ModelRanking",
    "Problem",
    "Promise",
    "Ranking",
    "Reference",
    "ReferenceError",
    "Rows",
    "Sensitivity",
    "SparseProcess",
    "Store",
    "Tally",
    "Task",
    "WideKernel",
    "compare",
    "deviation",
    "fidelity",
    "load_reference",
    "make_reference",
    "plan",
    "prior_predictive",
    "rank_models",
    "rank_priors",
    "run",
    "sbc",
    "sensitivity",
    "wide_kernel",
]
