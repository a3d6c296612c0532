"""How long a method runs: `Run` for samplers, `Train` for optimisers. What is left out belongs to the method."""

import dataclasses
import types
from functools import partial
from typing import Any, Self

import equinox as eqx

from tunbridge.core.data import check_x
from tunbridge.core.declared import MOST, Count, Module, Positive
from tunbridge.core.errors import InputError
from tunbridge.runtime.chunk import Plan

BATCH = 128
"""Maximum batch size within a gradient budget, for methods that take minibatches."""
LEAST = 200
"""Minimum number of draws, and of warm-up steps, within a budget for samplers whose trajectories vary in length."""
_TRAJECTORY = 32
"""Gradients counted per trajectory of unknown length."""
_CURVE = 200
"""Number of points of the learning curve that an optimiser keeps."""


def _checked_x(x: Any) -> Any:
    return None if x is None else check_x(x)


def _count(number: Count | None) -> Any:
    return number


def _whole(number: int | None) -> Any:
    return number


def _positive(number: Positive | None) -> Any:
    return None if number is None else float(number)


class Duration(Module):
    """How long a method runs. A field that is None is left to the method, which has a value of its own for it."""

    def over(self, default: Self) -> Self:
        """Return the same duration with the default's values of the fields that are None."""
        named = ((field.name, getattr(default, field.name)) for field in dataclasses.fields(self))
        missing = {name: value for name, value in named if getattr(self, name) is None and value is not None}
        return dataclasses.replace(self, **missing) if missing else self


class Run(Duration):
    """How long a sampler runs.

    Every field that is left out is the method's own: ``tb.SGHMC(run=tb.Run(chains=2))`` takes the warm-up, the draws
    and the thinning of ``tb.SGHMC()``. A method that says nothing else has 4 chains of 1,000 steps of warm-up and 1,000
    draws, and keeps every step at temperature 1.

    Parameters
    ----------
    chains
        Number of independent chains.
    warmup, draws
        Steps of adaptation, whose states are dropped, and kept draws, both per chain.
    thin
        Steps per kept draw.
    batch_size
        Rows per step; None takes all of them (stochastic-gradient samplers: at most 128).
    temperature
        Divides the log posterior; 1 is the Bayesian posterior. Scales and noise are in the units of their priors.
    keep
        Inputs (points, ...features) at which each draw keeps only the network's outputs, not its weights. None keeps
        the weights.
    """

    chains: int = eqx.field(default=None, converter=_count)
    warmup: int = eqx.field(default=None, converter=_whole)
    draws: int = eqx.field(default=None, converter=_count)
    thin: int = eqx.field(default=None, converter=_count)
    batch_size: Count | None = None
    temperature: float = eqx.field(default=None, converter=_positive)
    keep: Any = eqx.field(default=None, converter=_checked_x)

    def __check_init__(self):
        warmup = self.warmup or 0
        if warmup < 0:
            raise InputError("warmup of at least 0", f"{warmup}", "Change warmup=.")
        if (steps := warmup + (self.draws or 1) * (self.thin or 1)) > MOST:
            raise InputError(f"at most {MOST:,} steps per chain", f"{steps:,}", "Use fewer draws, or thin less.")

    def plan(self) -> Plan:
        """The plan of a chain: keep every `thin`-th step after warm-up."""
        return Plan(self.warmup + self.draws * self.thin, self.warmup, self.thin)

    def within(self, gradients: int, rows: int, each: int | None) -> "Run":
        """Return a run within a budget of per-example gradients over all chains; a step takes `each` on `rows` rows.

        The shares of warm-up and draws are kept. `each` is None for trajectories whose number of gradients is not known
        beforehand: each counts as 32, and there are never more than by default, and never fewer than 200 of warm-up and
        200 draws per chain.
        """
        steps = gradients // (self.chains * rows * (_TRAJECTORY if each is None else each))
        planned = self.warmup + self.draws * self.thin
        if each is None:
            steps = min(max(steps, 2 * LEAST), planned)
        after = steps - steps * self.warmup // planned
        draws = max(min(self.draws, after), 1)
        thin = max(after // draws, 1)
        return dataclasses.replace(self, warmup=max(steps - draws * thin, 0), draws=draws, thin=thin)


class Train(Duration):
    """How long an optimiser runs.

    Every field that is left out is the method's own; a method that says nothing else takes 2,000 steps of all rows.

    Parameters
    ----------
    steps
        Number of steps.
    batch_size
        Rows per step; None takes all of them.
    patience
        Stop when the smoothed objective has not fallen for this many steps; None never stops early.
    """

    steps: int = eqx.field(default=None, converter=_count)
    batch_size: Count | None = None
    patience: Count | None = None

    def plan(self) -> Plan:
        """The plan of an optimiser: keep a learning curve of about 200 points."""
        return Plan(self.steps, 0, max(1, self.steps // _CURVE))

    def within(self, gradients: int, rows: int) -> "Train":
        """Return a training within a budget of per-example gradients, with batches of 128 rows, or all if fewer."""
        batch = min(rows, BATCH)
        return dataclasses.replace(self, steps=max(gradients // batch, 2), batch_size=batch)


RUN = Run(chains=4, warmup=1000, draws=1000, thin=1, temperature=1.0)
"""The run of a sampler whose class says nothing else."""
TRAIN = Train(steps=2000)
"""The training of an optimiser whose class says nothing else."""


def complete_default(cls: type, name: str, general: Duration) -> None:
    """Complete a class's default of a field, and let it complete whatever `Duration` the field is given.

    What the default leaves out comes from the class's base, or else from `general`. Called while the class is created,
    before it becomes a dataclass; a field that the class does not declare, or that has a converter, is left as it is.
    """
    inherited = getattr(super(cls, cls), name, dataclasses.MISSING)
    declared = vars(cls).get(name, inherited)
    field = declared if isinstance(declared, dataclasses.Field) else eqx.field(default=declared)
    known = vars(cls).keys() | vars(cls).get("__annotations__", {}).keys()
    if name not in known or "converter" in field.metadata:
        return
    own = inherited if isinstance(inherited, Duration) else general
    if isinstance(field.default, Duration):
        own = field.default = field.default.over(own)
    elif field.default is not dataclasses.MISSING:
        return
    field.metadata = types.MappingProxyType({**field.metadata, "converter": partial(_completed, own)})
    setattr(cls, name, field)


def _completed(own: Duration, given: Any) -> Any:
    return given.over(own) if isinstance(given, Duration) else given
