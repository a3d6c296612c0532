"""Calibration and references refuse tempered methods: only temperature 1 targets the Bayesian posterior."""

import jax

from tunbridge.core.errors import InputError
from tunbridge.inference.base import Method
from tunbridge.runtime.durations import Run


def refuse_tempered(method: Method) -> None:
    """Raise InputError if a method, or a part of it, runs at a temperature other than 1."""
    for part in jax.tree.leaves(method, is_leaf=lambda part: isinstance(part, Run)):
        if isinstance(part, Run) and part.temperature != 1.0:
            raise InputError("a run at temperature 1", f"temperature {part.temperature}", "Leave temperature= out.")
