"""Decisions from predictive distributions: the best action, referral, and what it is worth to know more."""

from tunbridge.applications.decisions.actions import Interval, Simplex
from tunbridge.applications.decisions.choose import Decision, decide
from tunbridge.applications.decisions.information import Information, value_of_information
from tunbridge.applications.decisions.utilities import CARA, CVaR, Expected

__all__ = [
    "CARA",
    "CVaR",
    "Decision",
    "Expected",
    "Information",
    "Interval",
    "Simplex",
    "decide",
    "value_of_information",
]
