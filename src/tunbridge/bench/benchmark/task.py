"""A benchmark task: fixed splits of a data set, a model, a budget, and further evaluation inputs."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from tunbridge.bench.benchmark.budget import Budget
from tunbridge.core.errors import InputError
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model


class Rows(NamedTuple):
    """Inputs and targets at their original precision."""

    x: np.ndarray
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class Held:
    """The held-out data that a posterior is scored on; loaded only after the fit.

    Parameters
    ----------
    test
        The test rows.
    between
        Inputs in a gap between the training inputs.
    outside
        Out-of-distribution inputs, by name.
    shifted
        Shifted test rows, by kind of shift and severity.
    grid
        Sorted one-dimensional inputs at which to plot the function.
    """

    test: Rows
    between: np.ndarray | None = None
    outside: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    shifted: Mapping[str, Mapping[int, Rows]] = dataclasses.field(default_factory=dict)
    grid: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """A data set with fixed splits, a model, and a budget per fit.

    It holds no rows: training rows are loaded on demand, held-out rows only after the fit.

    Parameters
    ----------
    name
        Its name.
    model
        The Bayesian model of the data.
    splits
        The number of splits.
    budget
        The budget of each method per fit.
    train
        Function from a split to its training rows.
    held
        Function from a split to its held-out data.
    standardise
        Whether to standardise rows with the mean and standard deviation of the training rows.
    reference
        The name of a reference posterior that functions are compared with.
    tune
        Whether to tune hyperparameters; False for tasks about the posterior of the given model itself.
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
        """Whether the task is regression ("numbers") or classification ("classes")."""
        return "classes" if isinstance(self.model.likelihood, OfClasses) else "numbers"

    def check(self, split: int) -> None:
        """Raise InputError unless the split exists."""
        if not 0 <= split < self.splits:
            raise InputError(f"a split of {self.name} from 0 to {self.splits - 1}", f"{split}", "Change --splits.")

    def with_budget(self, gradients: int | None, seconds: float | None) -> "Task":
        """Return the task with another budget; a limit that is None stays."""
        given: dict[str, Any] = {"gradients": gradients, "seconds": seconds}
        other = {name: value for name, value in given.items() if value is not None}
        return dataclasses.replace(self, budget=dataclasses.replace(self.budget, **other))
