"""A task: rows in fixed splits, a model, a budget, and what is asked of a posterior besides its scores."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from tunbridge.bench.benchmark.budget import Budget
from tunbridge.core.errors import InputError
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model


class Rows(NamedTuple):
    """Inputs and targets, with the digits they came with."""

    x: np.ndarray
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class Held:
    """What a posterior is judged on, which is loaded when its fit is over.

    Parameters
    ----------
    test
        The rows held out.
    between
        Inputs in a gap of the training inputs, where functions are not known.
    outside
        By name, inputs of another kind than the training rows.
    shifted
        By kind of change, and by its severity, rows that are changed so.
    grid
        Inputs of one dimension, in order, at which a function can be drawn.
    """

    test: Rows
    between: np.ndarray | None = None
    outside: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    shifted: Mapping[str, Mapping[int, Rows]] = dataclasses.field(default_factory=dict)
    grid: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """A data set with fixed splits, a model of it, and what a method may spend.

    It holds no rows: a part of a split is loaded when it is asked for, and what a method is judged on after it has
    learnt.

    Parameters
    ----------
    name
        What it is called.
    model
        What is believed.
    splits
        How many there are.
    budget
        What each method may spend on a fit.
    train
        The rows to learn from, of a split.
    held
        What is judged on, of a split.
    standardise
        Whether rows are standardised by the training rows.
    reference
        The name of a reference posterior that functions are compared with.
    tune
        Whether hyperparameters are chosen; not where the model is given and its own posterior is asked for.
    """

    name: str
    model: Model
    splits: int
    budget: Budget
    train: Callable[[int], Rows]
    held: Callable[[int], Held]
    standardise: bool = True
    reference: str | None = None
    tune: bool = True

    @property
    def kind(self) -> Literal["numbers", "classes"]:
        """What is predicted."""
        return "classes" if isinstance(self.model.likelihood, OfClasses) else "numbers"

    def check(self, split: int) -> None:
        """InputError unless there is such a split."""
        if not 0 <= split < self.splits:
            raise InputError(f"a split of {self.name} from 0 to {self.splits - 1}", f"{split}", "Change --splits.")

    def with_budget(self, gradients: int | None, seconds: float | None) -> "Task":
        """The same task with another budget, as far as it is given."""
        given: dict[str, Any] = {"gradients": gradients, "seconds": seconds}
        other = {name: value for name, value in given.items() if value is not None}
        return dataclasses.replace(self, budget=dataclasses.replace(self.budget, **other))
