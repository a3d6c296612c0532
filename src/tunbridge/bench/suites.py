"""Suites of tasks by name."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import numpy as np

from tunbridge.bench.budget import Budget
from tunbridge.bench.task import Held, Rows, Task
from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Likelihood
from tunbridge.datasets import toy as toys
from tunbridge.model import defaults
from tunbridge.model.likelihoods import Bernoulli, Heteroscedastic
from tunbridge.model.model import Model
from tunbridge.model.networks import MLP

_TOY = Budget(gradients=2_000_000, seconds=60.0)


def _model(likelihood: Likelihood, hidden: tuple[int, ...] = (50,), activation: str = "tanh") -> Model:
    return Model(MLP(hidden, activation), defaults.prior(), likelihood)


def _rows(data: Data) -> Rows:
    return Rows(np.asarray(data.x), np.asarray(data.y))


def _curve(key: jax.Array, num: int) -> Data:
    """The function of `datasets.curve` on all of [-2, 2]."""
    key_x, key_noise = jax.random.split(key)
    x = jax.random.uniform(key_x, (num,), minval=-2.0, maxval=2.0)
    return Data(x[:, None], toys.curve_mean(x) + 0.1 * jax.random.normal(key_noise, (num,)))


def _toy_train(make: Callable[..., Data], num: int, split: int) -> Rows:
    return _rows(make(jax.random.key(2 * split), num))


def _toy_held(make: Callable[..., Data], kind: str, split: int) -> Held:
    test = _rows(make(jax.random.key(2 * split + 1), 500))
    if kind == "moons":
        angle = np.random.default_rng(split).uniform(0.0, 2.0 * np.pi, 300)
        ring = np.stack([0.5 + 5.0 * np.cos(angle), 0.25 + 5.0 * np.sin(angle)], axis=1)
        return Held(test, outside={"ring": ring})
    between = np.linspace(-0.6, 0.2, 50)[:, None] if kind == "gap" else None
    return Held(test, between=between, grid=np.linspace(-3.0, 3.0, 121)[:, None])


def _toy() -> list[Task]:
    kinds: dict[str, tuple[Callable[..., Data], int, Likelihood]] = {
        "curve": (_curve, 60, defaults.of_numbers()),
        "gap": (toys.curve, 60, defaults.of_numbers()),
        "heteroscedastic": (toys.funnel, 200, Heteroscedastic()),
        "moons": (toys.moons, 200, Bernoulli()),
    }
    return [
        Task(name, _model(likelihood), 2, _TOY, partial(_toy_train, make, num), partial(_toy_held, make, name))
        for name, (make, num, likelihood) in kinds.items()
    ]


SUITES: dict[str, Callable[[], Sequence[Task]]] = {"toy": _toy}
"""By name, what gives the tasks of a suite."""


def tasks(suite: str, names: Sequence[str] = ()) -> tuple[Task, ...]:
    """The tasks of a suite; all of them, or those that are named."""
    if suite not in SUITES:
        raise InputError(f"a suite of {', '.join(SUITES)}", repr(suite), "Choose one of these names.")
    found = {task.name: task for task in SUITES[suite]()}
    if missing := [name for name in names if name not in found]:
        raise InputError(f"tasks of {', '.join(found)}", ", ".join(missing), "Change --tasks.")
    return tuple(found[name] for name in names or found)
