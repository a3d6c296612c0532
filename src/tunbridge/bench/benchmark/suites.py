"""Suites of tasks by name."""

import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np

from tunbridge import datasets
from tunbridge.bench.benchmark import shifts
from tunbridge.bench.benchmark.budget import Budget
from tunbridge.bench.benchmark.task import Held, Rows, Task
from tunbridge.bench.truth import recipes
from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Likelihood
from tunbridge.datasets import toy as toys
from tunbridge.datasets.scaling import split_rows
from tunbridge.model import defaults
from tunbridge.model.likelihoods import Bernoulli, Categorical, Heteroscedastic
from tunbridge.model.model import Model
from tunbridge.model.networks import MLP

_PLANS = json.loads(Path(__file__).with_name("suites.json").read_text(encoding="utf-8"))
"""The suites as `tunbridge bench --list` shows them: names, targets, numbers of splits, budgets."""
_SMALL = {"diabetes": datasets.diabetes, "breast_cancer": datasets.breast_cancer}
_SMALL |= {"wine": datasets.wine, "digits": datasets.digits}
_CLASSES = {"breast_cancer": 2, "wine": 3, "digits": 10}


def _plan(suite: str) -> tuple[Budget, dict[str, int]]:
    """The budget per fit, and the number of splits of each task."""
    plan = _PLANS[suite]
    return Budget(plan["gradients"], plan["seconds"]), {name: task["splits"] for name, task in plan["tasks"].items()}


def _model(likelihood: Likelihood, hidden: tuple[int, ...], activation: str) -> Model:
    return Model(MLP(hidden, activation), defaults.prior(), likelihood)


def _rows(data: Data, chosen: np.ndarray | slice = slice(None)) -> Rows:
    return Rows(np.asarray(data.x)[chosen], np.asarray(data.y)[chosen])


# toy: synthetic problems with known truth


def _curve(key: Key, num: int) -> Data:
    """The function of `datasets.curve` on all of [-2, 2]."""
    key_x, key_noise = jax.random.split(key)
    x = jax.random.uniform(key_x, (num,), minval=-2.0, maxval=2.0)
    return Data(x[:, None], toys.curve_mean(x) + 0.1 * jax.random.normal(key_noise, (num,)))


def _toy_train(make: Callable[..., Data], num: int, split: int) -> Rows:
    return _rows(make(jax.random.key(2 * split), num))


def _toy_held(make: Callable[..., Data], name: str, split: int) -> Held:
    test = _rows(make(jax.random.key(2 * split + 1), 500))
    if name == "moons":
        angle = np.random.default_rng(split).uniform(0.0, 2.0 * np.pi, 300)
        ring = np.stack([0.5 + 5.0 * np.cos(angle), 0.25 + 5.0 * np.sin(angle)], axis=1)
        return Held(test, outside={"ring": ring})
    between = np.linspace(-0.6, 0.2, 50)[:, None] if name == "gap" else None
    return Held(test, between=between, grid=np.linspace(-3.0, 3.0, 121)[:, None])


def _toy() -> list[Task]:
    """A curve, a curve with a gap, heteroscedastic noise and two moons: one hidden layer of 50 tanh units."""
    kinds: dict[str, tuple[Callable[..., Data], int, Likelihood]] = {
        "curve": (_curve, 60, defaults.of_numbers()),
        "gap": (toys.curve, 60, defaults.of_numbers()),
        "heteroscedastic": (toys.funnel, 200, Heteroscedastic()),
        "moons": (toys.moons, 200, Bernoulli()),
    }
    budget, splits = _plan("toy")
    return [
        Task(
            name,
            _model(likelihood, (50,), "tanh"),
            splits[name],
            budget,
            partial(_toy_train, make, num),
            partial(_toy_held, make, name),
        )
        for name, (make, num, likelihood) in kinds.items()
    ]


# small: tables that come with scikit-learn


def _small_part(name: str, split: int) -> tuple[Data, np.ndarray, np.ndarray]:
    data = _SMALL[name]()
    train, test = split_rows(data.num, jax.random.key(split))
    return data, np.asarray(train), np.asarray(test)


def _small_train(name: str, split: int) -> Rows:
    data, train, _ = _small_part(name, split)
    return _rows(data, train)


def _small_held(name: str, split: int) -> Held:
    data, _, test = _small_part(name, split)
    return Held(_rows(data, test))


def _small() -> list[Task]:
    """Bundled tables with a random fifth of the rows held out, and the default model with two hidden layers."""
    (budget, splits), task_list = _plan("small"), []
    for name in _SMALL:
        likelihood = defaults.of_classes(_CLASSES[name]) if name in _CLASSES else defaults.of_numbers()
        model = Model(MLP((50, 50)), defaults.prior(), likelihood)
        task_list.append(
            Task(name, model, splits[name], budget, partial(_small_train, name), partial(_small_held, name))
        )
    return task_list


# uci and gap: public tables with public splits


def table(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, y and the public splits of a UCI table, (splits, rows), True for held-out rows.

    The file is ``uci/NAME.npz`` in the folder that the environment variable TUNBRIDGE_DATA names, with arrays x, y,
    n (the number of rows) and test (the splits as packed bits).
    """
    folder = os.environ.get("TUNBRIDGE_DATA", "")
    path = Path(folder) / "uci" / f"{name}.npz"
    if not folder or not path.is_file():
        raise InputError(
            f"uci/{name}.npz in the folder that TUNBRIDGE_DATA names",
            f"none in {folder!r}",
            "Put the public table there; docs/bench.md describes its format.",
        )
    with np.load(path) as file:
        held = np.unpackbits(file["test"], axis=1)[:, : int(file["n"])].astype(bool)
        return file["x"], file["y"], held


def _uci_train(name: str, split: int) -> Rows:
    x, y, held = table(name)
    return Rows(x[~held[split]], y[~held[split]])


def _uci_held(name: str, split: int) -> Held:
    x, y, held = table(name)
    return Held(Rows(x[held[split]], y[held[split]]))


def _middle(x: np.ndarray, column: int) -> np.ndarray:
    """Mask of the rows in the middle third of a column."""
    order, third = np.argsort(x[:, column], kind="stable"), len(x) // 3
    mask = np.zeros(len(x), bool)
    mask[order[third : len(x) - third]] = True
    return mask


def _gap_train(name: str, column: int) -> Rows:
    x, y, _ = table(name)
    held = _middle(x, column)
    return Rows(x[~held], y[~held])


def _gap_held(name: str, column: int) -> Held:
    x, y, _ = table(name)
    held = _middle(x, column)
    return Held(Rows(x[held], y[held]))


def _tables(suite: str, train: Callable[..., Rows], held: Callable[..., Held]) -> list[Task]:
    (budget, splits), task_list = _plan(suite), []
    for name, num in splits.items():
        model = _model(defaults.of_numbers(), (100 if name == "protein" else 50,), "relu")
        task_list.append(Task(name, model, num, budget, partial(train, name), partial(held, name)))
    return task_list


def _uci() -> list[Task]:
    """Nine public tables with their public splits: one hidden layer of 50 relu units, 100 for protein."""
    return _tables("uci", _uci_train, _uci_held)


def _gap() -> list[Task]:
    """The same tables; split i holds out the middle third of input i :cite:p:`foong2019between`."""
    return _tables("gap", _gap_train, _gap_held)


# shift: MNIST digits, with shifted and out-of-distribution test inputs


def _shift() -> list[Task]:
    """5,000 digits of MNIST, tested on other digits, on rotated and corrupted ones, and on letters."""
    model = _model(Categorical(10), (100,), "relu")
    budget, splits = _plan("shift")
    return [Task("mnist", model, splits["mnist"], budget, shifts.train, shifts.held, standardise=False)]


# reference: distance of each method from long chains of NUTS


def _reference_train(name: str, _: int) -> Rows:
    return _rows(recipes.RECIPES[name]().data)


def _reference_held(name: str, _: int) -> Held:
    if name == "curve":
        grid, between = np.linspace(-3.0, 3.0, 121)[:, None], np.linspace(-0.6, 0.2, 50)[:, None]
        return Held(_rows(toys.curve(jax.random.key(3), 500)), between=between, grid=grid)
    return Held(_rows(recipes.halves(name)[1]))


def _reference() -> list[Task]:
    """Problems with a reference posterior from long chains: the model is given, so nothing is tuned."""
    (budget, splits), task_list = _plan("reference"), []
    for name, recipe in recipes.RECIPES.items():
        parts = partial(_reference_train, name), partial(_reference_held, name)
        task_list.append(
            Task(name, recipe().model, splits[name], budget, *parts, standardise=False, reference=name, tune=False)
        )
    return task_list


SUITES: dict[str, Callable[[], Sequence[Task]]] = {
    "toy": _toy,
    "small": _small,
    "uci": _uci,
    "gap": _gap,
    "shift": _shift,
    "reference": _reference,
}
"""Functions that make the tasks of a suite, by name of the suite."""


def tasks(suite: str, names: Sequence[str] = ()) -> tuple[Task, ...]:
    """Return the tasks of a suite: all of them, or those named."""
    if suite not in SUITES:
        raise InputError(f"a suite of {', '.join(SUITES)}", repr(suite), "Choose one of these names.")
    by_name = {task.name: task for task in SUITES[suite]()}
    if missing := [name for name in names if name not in by_name]:
        raise InputError(f"tasks of {', '.join(by_name)}", ", ".join(missing), "Change --tasks.")
    return tuple(by_name[name] for name in names or by_name)
