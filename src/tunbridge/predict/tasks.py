"""Predictive distributions over the targets of several tasks."""

from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.declared import Count, as_floats, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key
from tunbridge.model.likelihoods.multitask import MultiTask
from tunbridge.predict.base import AbstractPredictive
from tunbridge.predict.mixture import MixturePredictive
from tunbridge.predict.outputs import Outputs


class TasksPredictive(MixturePredictive):
    """The tasks of a `MultiTask` likelihood: jointly in `log_prob` and `sample`, and each by itself in `tasks`.

    Uncertainties are dicts with one entry per task, since tasks differ in their units. Tasks are independent given the
    network, and dependent through it.

    Parameters
    ----------
    outputs
        Outputs of the whole network, for all tasks.
    tasks
        The predictive of each task, by name.
    shift, scale
        The units of y, (columns,): y is shift + scale times what the likelihood scores. None leaves those units.
    """

    def __init__(self, outputs: Outputs, tasks: dict[str, AbstractPredictive], shift: Any = None, scale: Any = None):
        super().__init__(outputs)
        self.tasks = tasks
        width = sum(self.columns)
        self._shift = np.zeros(width) if shift is None else np.asarray(shift, np.float64)
        self._scale = np.ones(width) if scale is None else np.asarray(scale, np.float64)

    @property
    def outputs(self) -> Outputs:
        """Outputs of the whole network, for all tasks."""
        return self._outputs

    @property
    def columns(self) -> tuple[int, ...]:
        """Number of columns of y of each task."""
        return cast(MultiTask, self._outputs.model.likelihood).columns

    @property
    def _shape(self) -> tuple[int, ...]:
        return len(self._outputs.x), len(self._scale)

    def _shown(self) -> dict[str, Array]:
        shown = {name: task._shown() for name, task in self.tasks.items()}
        return {f"{part} of {name}": value for name, parts in shown.items() for part, value in parts.items()}

    @property
    def mode(self) -> Array:
        """The most probable value of each task by itself, (points, columns)."""
        modes = [jnp.asarray(task.mode) for task in self.tasks.values()]
        return jnp.concatenate([mode[:, None] if mode.ndim == 1 else mode for mode in modes], axis=1)

    @property
    def functions(self) -> Array:
        """Means or class probabilities of all tasks under each network, (networks, points, outputs and classes)."""
        return jnp.concatenate([jnp.asarray(task.functions) for task in self.tasks.values()], axis=-1)

    @property
    def entropy(self) -> Any:
        """Entropy of each task, in nats, by name."""
        return {name: task.entropy for name, task in self.tasks.items()}

    @property
    def total(self) -> Any:
        """Total uncertainty of each task by name, in variances or nats."""
        return {name: task.total for name, task in self.tasks.items()}

    @property
    def aleatoric(self) -> Any:
        """Aleatoric uncertainty of each task by name, in variances or nats."""
        return {name: task.aleatoric for name, task in self.tasks.items()}

    @property
    def epistemic(self) -> Any:
        """Epistemic uncertainty of each task by name, in variances or nats."""
        return {name: task.epistemic for name, task in self.tasks.items()}

    @property
    def mean(self) -> Array:
        """Refused with InputError, as only a single task has it; see `tasks`."""
        raise self._ask("a mean")

    @property
    def variance(self) -> Array:
        """Refused with InputError, as only a single task has it; see `tasks`."""
        raise self._ask("a variance")

    @property
    def probs(self) -> Array:
        """Refused with InputError, as only a single task has it; see `tasks`."""
        raise self._ask("class probabilities")

    def quantile(self, q: Any) -> Array:
        """Refused with InputError, as only a single task has it; see `tasks`."""
        raise self._ask("quantiles")

    def cdf(self, y: Any) -> Array:
        """Refused with InputError, as only a single task has it; see `tasks`."""
        raise self._ask("a distribution function")

    def cdfs(self, y: Any) -> Array:
        """Refused with InputError, as only a single task has it; see `tasks`."""
        raise self._ask("a distribution function for each network")

    def log_prob(self, y: Any) -> Any:
        """Log p(y) of all tasks jointly, (points,)."""
        return super().log_prob(self._in(y)) - np.sum(np.log(self._scale))

    def log_probs(self, y: Any) -> Any:
        """Log p(y) of all tasks under each network, (networks, points)."""
        return super().log_probs(self._in(y)) - np.sum(np.log(self._scale))

    @checked
    def replicates(self, key: Key) -> Any:
        """A draw of all tasks from each network, (networks, points, columns)."""
        return self._out(super().replicates(key))

    @checked
    def sample(self, key: Key, num: Count) -> Any:
        """Draws of all tasks, (num, points, columns). Each uses one network at all points."""
        return self._out(super().sample(key, num))

    def _in(self, y: Any) -> np.ndarray:
        values = as_floats(y, "y")
        if values.shape != self._shape:
            raise InputError(f"y of shape {self._shape}", f"shape {values.shape}", "Pass the targets of all tasks.")
        return (values - self._shift[None]) / self._scale[None]

    def _out(self, values: Array) -> Any:
        lead = (None,) * (values.ndim - 1)
        return self._shift[lead] + self._scale[lead] * np.asarray(values, np.float64)

    def _ask(self, what: str) -> InputError:
        named = " or ".join(f"predictive.tasks[{name!r}]" for name in list(self.tasks)[:2])
        return InputError(f"a predictive of one task, which has {what}", "one of several tasks", f"Ask {named}.")
