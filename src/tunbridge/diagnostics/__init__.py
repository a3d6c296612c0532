"""Diagnostics of posterior draws: functions of arrays."""

from tunbridge.diagnostics.convergence import ess_bulk, ess_tail, mcse, rhat
from tunbridge.diagnostics.discrepancy import mmd
from tunbridge.diagnostics.energy import bfmi, energy_balance
from tunbridge.diagnostics.modes import modes
from tunbridge.diagnostics.psis import Loo, loo
from tunbridge.diagnostics.stein import stein_discrepancy
from tunbridge.diagnostics.tails import hill
from tunbridge.diagnostics.uniformity import Calibration, uniformity

__all__ = [
    "Calibration",
    "Loo",
    "bfmi",
    "energy_balance",
    "ess_bulk",
    "ess_tail",
    "hill",
    "loo",
    "mcse",
    "mmd",
    "modes",
    "rhat",
    "stein_discrepancy",
    "uniformity",
]
