"""Comparisons of methods with each other, with baselines, with exact answers and with reference posteriors."""

from tunbridge.bench.baselines import BASELINES, Boosting, CalibratedMAP, Fitted, Process, Ridge
from tunbridge.bench.baselines.processes import ExactProcess, FittedProcess, SparseProcess, WideKernel, wide_kernel
from tunbridge.bench.beliefs.evidence import ModelRanking, rank_models
from tunbridge.bench.beliefs.inputs import (
    Needed,
    PartialEffects,
    PartialFunction,
    drop_inputs,
    partial_effects,
    partial_function,
)
from tunbridge.bench.beliefs.priors import Beliefs, Ranking, Sensitivity, prior_predictive, rank_priors, sensitivity
from tunbridge.bench.beliefs.units import Units, num_units
from tunbridge.bench.benchmark.board import page
from tunbridge.bench.benchmark.budget import Budget
from tunbridge.bench.benchmark.leaderboard import Leaderboard
from tunbridge.bench.benchmark.published import Published, published
from tunbridge.bench.benchmark.runner import Job, Tally, plan, run
from tunbridge.bench.benchmark.store import Store
from tunbridge.bench.benchmark.suites import SUITES
from tunbridge.bench.benchmark.task import Held, Rows, Task
from tunbridge.bench.benchmark.tuning import GRIDS
from tunbridge.bench.comparing.compare import Comparison, compare
from tunbridge.bench.comparing.cost import cost
from tunbridge.bench.comparing.recommend import Difference, Recommendation
from tunbridge.bench.comparing.verdict import Guess
from tunbridge.bench.truth.exact import PROBLEMS, Problem, deviation
from tunbridge.bench.truth.reference import (
    Reference,
    ReferenceError,
    fidelity,
    load_reference,
    make_reference,
    references,
)
from tunbridge.bench.truth.sbc import sbc
from tunbridge.inference.promises import PROMISES, Promise

__all__ = [
    "BASELINES",
    "GRIDS",
    "PROBLEMS",
    "PROMISES",
    "SUITES",
    "Beliefs",
    "Boosting",
    "Budget",
    "CalibratedMAP",
    "Comparison",
    "Difference",
    "ExactProcess",
    "Fitted",
    "FittedProcess",
    "Guess",
    "Held",
    "Job",
    "Leaderboard",
    "ModelRanking",
    "Needed",
    "PartialEffects",
    "PartialFunction",
    "Problem",
    "Process",
    "Promise",
    "Published",
    "Ranking",
    "Recommendation",
    "Reference",
    "ReferenceError",
    "Ridge",
    "Rows",
    "Sensitivity",
    "SparseProcess",
    "Store",
    "Tally",
    "Task",
    "Units",
    "WideKernel",
    "compare",
    "cost",
    "deviation",
    "drop_inputs",
    "fidelity",
    "load_reference",
    "make_reference",
    "num_units",
    "page",
    "partial_effects",
    "partial_function",
    "plan",
    "prior_predictive",
    "published",
    "rank_models",
    "rank_priors",
    "references",
    "run",
    "sbc",
    "sensitivity",
    "wide_kernel",
]
