"""Contextual bandits: in each context one arm is tried, and only its reward is seen."""

from typing import Any

import equinox as eqx
import numpy as np

from tunbridge.core.data import check_x
from tunbridge.core.declared import Count, Module, Positive, as_floats, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.core.keys import seed
from tunbridge.core.types import Key


class Environment(Module):
    """Contexts, and what each arm brings in each of them: one of several values by chance, plus normal noise.

    Parameters
    ----------
    contexts
        (rows, features).
    values, chances
        The values that the reward of an arm may have, and their probabilities, (rows, arms, values) each.
    noise
        Standard deviation of normal noise on all rewards.
    """

    contexts: Any = eqx.field(converter=check_x)
    values: Any = eqx.field(converter=lambda values: as_floats(values, "values"))
    chances: Any = eqx.field(converter=lambda values: as_floats(values, "chances"))
    noise: float = 0.0

    def __check_init__(self):
        shape, rows = self.values.shape, len(self.contexts)
        if len(shape) != 3 or shape[0] != rows or shape[1] < 2 or self.chances.shape != shape:
            raise InputError(
                f"values and chances ({rows}, arms, values) for two arms or more",
                f"shapes {shape} and {self.chances.shape}",
                "Give each row and arm its values.",
            )
        if (
            not np.isfinite(self.values).all()
            or (self.chances < 0).any()
            or not np.allclose(self.chances.sum(axis=2), 1.0)
        ):
            raise InputError("finite values with probabilities that sum to 1", "others", "Correct them.")
        if not 0.0 <= self.noise < np.inf:
            raise InputError("noise of 0 or more", f"{self.noise}", "Give a standard deviation.")

    @property
    def arms(self) -> int:
        """Number of arms."""
        return self.values.shape[1]

    @property
    def means(self) -> np.ndarray:
        """Expected rewards, (rows, arms)."""
        return np.sum(self.values * self.chances, axis=2)

    def order(self, key: Key, steps: int) -> np.ndarray:
        """The row of each step, (steps,): all rows in a random order, then all in another one, and so on."""
        rng, rows = np.random.default_rng([0, *seed(key)]), len(self.contexts)
        return np.concatenate([rng.permutation(rows) for _ in range(-(-steps // rows))])[:steps]

    def reward(self, key: Key, step: int, rows: np.ndarray, arms: np.ndarray) -> np.ndarray:
        """Rewards of the arms that are tried at these rows, from `step` on, (rows,)."""
        rng = np.random.default_rng([1, step, *seed(key)])
        edges = np.cumsum(self.chances[rows, arms], axis=1)
        which = np.minimum((rng.random(len(rows))[:, None] > edges).sum(axis=1), edges.shape[1] - 1)
        return self.values[rows, arms, which] + self.noise * rng.normal(size=len(rows))


@checked
def labelled(x: Any, y: Any, payoffs: Any = None) -> Environment:
    """Return a table of classes as a bandit: the arm is a guess of the class, its reward 1 if right and 0 if not.

    Parameters
    ----------
    x, y
        Rows (points, features), and the numbers of their classes (points,).
    payoffs
        What each arm brings in each class, (classes, arms); None is the identity.
    """
    rows, labels = check_x(x), as_floats(y, "y")
    whole = labels.shape == (len(rows),) and (labels == np.round(labels)).all() and (labels >= 0).all()
    if not whole or labels.max() < 1 or labels.max() > 10_000:
        raise InputError("y as numbers of two classes or more, from 0", shown(y), "Number the classes.")
    classes = int(labels.max()) + 1
    table = np.eye(classes) if payoffs is None else as_floats(payoffs, "payoffs")
    if table.ndim != 2 or len(table) != classes or table.shape[1] < 2:
        raise InputError(f"payoffs ({classes} classes, arms) for two arms or more", f"shape {table.shape}", "Match y.")
    values = table[labels.astype(int)][..., None]
    return Environment(rows, values, np.ones(values.shape))


@checked
def mushrooms(x: Any, edible: Any) -> Environment:
    """Return the mushroom bandit of :cite:t:`blundell2015weight`: to eat (arm 1) or not (arm 0).

    An edible mushroom brings 5, a poisonous one -35 or 5 alike; not to eat brings 0.

    Parameters
    ----------
    x, edible
        Encoded mushrooms (points, features), and whether each is edible (points,).
    """
    rows, good = check_x(x), as_floats(edible, "edible")
    if good.shape != (len(rows),) or not np.isin(good, (0.0, 1.0)).all():
        raise InputError(f"edible as 0 or 1 for each of {len(rows)} rows", shown(edible), "Give one per row.")
    good = good.astype(bool)
    values = np.zeros((len(good), 2, 2))
    values[:, 1] = np.where(good[:, None], 5.0, np.array([[-35.0, 5.0]]))
    return Environment(rows, values, np.full(values.shape, 0.5))


@checked
def wheel(key: Key, num: Count = 10_000, delta: Positive = 0.9, *, noise: float = 0.01) -> Environment:
    """Return the wheel bandit of :cite:t:`riquelme2018deep`, whose best arms are rarely worth trying.

    Contexts are uniform in the unit disc. Arm 0 brings 1.2, the others 1, but beyond the radius `delta` the arm of the
    context's quadrant brings 50.

    Parameters
    ----------
    key, num
        The key, and the number of contexts.
    delta
        Below 1: the larger, the rarer are contexts in which exploring pays.
    noise
        Standard deviation of the rewards.
    """
    if delta >= 1.0:
        raise InputError("delta below 1", f"{delta}", "Write 0.9.")
    rng = np.random.default_rng(seed(key))
    radius, angle = np.sqrt(rng.random(num)), 2.0 * np.pi * rng.random(num)
    contexts = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    means = np.tile([1.2, 1.0, 1.0, 1.0, 1.0], (num, 1))
    far = np.flatnonzero(radius > delta)
    means[far, 1 + (angle[far] // (np.pi / 2)).astype(int) % 4] = 50.0
    return Environment(contexts, means[..., None], np.ones((num, 5, 1)), noise)


@checked
def linear(key: Key, num: Count = 10_000, features: Count = 10, arms: Count = 5, *, noise: float = 0.1) -> Environment:
    """Return a bandit whose rewards are linear in the context, where linear Thompson sampling has the true model.

    Contexts are standard normal; each arm's coefficients are uniform on the sphere of radius 1.

    Parameters
    ----------
    key, num
        The key, and the number of contexts.
    features, arms
        Entries of a context, and arms: 2 or more.
    noise
        Standard deviation of the rewards.
    """
    rng = np.random.default_rng(seed(key))
    contexts, coefficients = rng.normal(size=(num, features)), rng.normal(size=(features, arms))
    means = contexts @ (coefficients / np.linalg.norm(coefficients, axis=0))
    return Environment(contexts, means[..., None], np.ones((num, arms, 1)), noise)
