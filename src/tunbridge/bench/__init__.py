"""Methods against the truth and against each other."""

from tunbridge.bench.baselines import BASELINES, Boosting, CalibratedMAP, Fitted, Process, Ridge
from tunbridge.bench.beliefs import Beliefs, Ranking, Sensitivity, prior_predictive, rank_priors, sensitivity
from tunbridge.bench.board import page
from tunbridge.bench.budget import Budget
from tunbridge.bench.compare import Comparison, compare
from tunbridge.bench.cost import cost
from tunbridge.bench.exact import PROBLEMS, Problem, deviation
from tunbridge.bench.leaderboard import Leaderboard
from tunbridge.bench.models import ModelRanking, rank_models
from tunbridge.bench.processes import ExactProcess, FittedProcess, SparseProcess, WideKernel, wide_kernel
from tunbridge.bench.published import Published, published
from tunbridge.bench.recommend import Difference, Recommendation
from tunbridge.bench.reference import (
    Reference,
    ReferenceError,
    fidelity,
    load_reference,
    make_reference,
    references,
)
from tunbridge.bench.runner import Job, Tally, plan, run
from tunbridge.bench.sbc import sbc
from tunbridge.bench.store import Store
from tunbridge.bench.suites import SUITES
from tunbridge.bench.task import Held, Rows, Task
from tunbridge.bench.tuning import GRIDS
from tunbridge.bench.verdict import Guess
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
    "WideKernel",
    "compare",
    "cost",
    "deviation",
    "fidelity",
    "load_reference",
    "make_reference",
    "page",
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
