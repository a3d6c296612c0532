"""What may be done: a list of actions, or a continuous set of them."""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from tunbridge.core.declared import Count, Module, as_floats, shown
from tunbridge.core.errors import InputError

_STARTS = 33


class Continuous(Module):
    """A continuous set of actions, in coordinates of about unit size, along which a payoff is optimised."""

    @property
    @abc.abstractmethod
    def starts(self) -> np.ndarray:
        """Coordinates from which the best one is searched, (starts, coordinates)."""

    @abc.abstractmethod
    def projected(self, coordinates: Array) -> Array:
        """Return the nearest coordinates within the set."""

    @abc.abstractmethod
    def action(self, coordinates: Array) -> Array:
        """Return the action at these coordinates."""


def _as_end(value: Any) -> np.ndarray:
    return as_floats(value, "low and high")


class Interval(Continuous):
    """All numbers between two, or all vectors between two.

    Parameters
    ----------
    low, high
        The ends, numbers or arrays (entries,).

    Examples
    --------
    >>> from tunbridge import decisions
    >>> order = decisions.Interval(0.0, 500.0)
    """

    low: Any = eqx.field(converter=_as_end)
    high: Any = eqx.field(converter=_as_end)

    def __check_init__(self):
        if self.low.shape != self.high.shape or self.low.ndim > 1 or not np.all(self.low < self.high):
            raise InputError("low below high, of one shape", f"{self.low} and {self.high}", "Swap or reshape them.")
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise InputError("finite ends", f"{self.low} and {self.high}", "Give bounds far away instead.")

    @property
    def starts(self) -> np.ndarray:
        """Evenly spaced actions, the same for all entries."""
        return np.broadcast_to(np.linspace(0.0, 1.0, _STARTS)[:, None], (_STARTS, self.low.size))

    def projected(self, coordinates: Array) -> Array:
        """Return the coordinates cut off at 0 and 1."""
        return jnp.clip(coordinates, 0.0, 1.0)

    def action(self, coordinates: Array) -> Array:
        """Return the action: coordinates are shares of the way from low to high."""
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        return low + (high - low) * coordinates.reshape(low.shape)


class Simplex(Continuous):
    """All vectors of shares: not negative, with sum 1. A portfolio without short sales, say.

    Parameters
    ----------
    size
        Number of shares, 2 or more.
    """

    size: Count = eqx.field(static=True)

    def __check_init__(self):
        if self.size < 2:
            raise InputError("two shares or more", f"{self.size}", "With one share nothing is to be decided.")

    @property
    def starts(self) -> np.ndarray:
        """Equal shares, and all in each of them."""
        return np.concatenate([np.full((1, self.size), 1.0 / self.size), np.eye(self.size)])

    def projected(self, coordinates: Array) -> Array:
        """Return the nearest shares."""
        return optax.projections.projection_simplex(coordinates)

    def action(self, coordinates: Array) -> Array:
        """Return the shares, which are the coordinates."""
        return coordinates


class Listed(NamedTuple):
    """A list of actions: the arrays that a payoff takes, (actions, ...), and their names."""

    values: np.ndarray
    names: tuple[str, ...] | None


def listed(actions: Any) -> Listed:
    """Return a list of names, whose payoffs are asked by their number, or of numbers or vectors."""
    if isinstance(actions, Sequence) and actions and all(isinstance(action, str) for action in actions):
        if len(set(actions)) < len(actions):
            raise InputError("actions of different names", shown(actions), "Rename one.")
        return Listed(np.arange(len(actions)), tuple(actions))
    values = as_floats(actions, "actions")
    if values.ndim not in (1, 2) or not len(values) or not np.isfinite(values).all():
        raise InputError(
            "a list of names, an array of numbers (actions,) or (actions, entries), or decisions.Interval or Simplex",
            shown(actions),
            'Write ["treat", "wait"], or np.linspace(0.0, 10.0, 101).',
        )
    return Listed(values, None)
