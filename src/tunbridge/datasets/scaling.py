"""Splitting and standardising: statistics come from the training rows alone."""

from typing import Any

import jax
import numpy as np
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key


def split(data: Data, key: Key, share: float = 0.2) -> tuple[Data, Data]:
    """Rows at random in two parts: (train, test), where test has that share."""
    train, test = split_rows(data.num, key, share)
    return jax.tree.map(lambda leaf: leaf[train], data), jax.tree.map(lambda leaf: leaf[test], data)


def split_rows(num: int, key: Key, share: float = 0.2) -> tuple[Array, Array]:
    """The numbers of rows at random in two parts: (train, test), where test has that share."""
    held = round(share * num) if 0.0 < share < 1.0 else 0
    if not 0 < held < num:
        raise InputError("rows in both parts", f"a share of {share} of {num} for the test", "Choose another share.")
    order = jax.random.permutation(key, num)
    return order[held:], order[:held]


class Scaling(Module):
    """Shifts and scales that standardise columns, in float64; a constant column keeps scale 1.

    Make it with `Scaling.of`. Where y is not scaled, its shift and scale are None.
    """

    x_shift: np.ndarray
    x_scale: np.ndarray
    y_shift: np.ndarray | None
    y_scale: np.ndarray | None

    @classmethod
    def of(cls, x: Any, y: Any = None, weight: Any = None) -> "Scaling":
        """Statistics of the training rows, each counted as often as its weight says.

        Leave y out where it is labels. They are computed in float64 from the numbers as given: the digits of a column
        far from zero survive.
        """
        x_shift, x_scale = _statistics(np.asarray(x, np.float64), weight)
        y_shift, y_scale = (None, None) if y is None else _statistics(_matrix(y), weight)
        return cls(x_shift, x_scale, y_shift, y_scale)

    def keeping(self, x: Any = (), y: Any = ()) -> "Scaling":
        """The same, but for columns of x and of y that stay as they are: their numbers, or a mask of them."""
        x_shift, x_scale = _kept(self.x_shift, self.x_scale, x)
        if self.y_shift is None or self.y_scale is None:
            return Scaling(x_shift, x_scale, None, None)
        y_shift, y_scale = _kept(self.y_shift, self.y_scale, y)
        return Scaling(x_shift, x_scale, y_shift, y_scale)

    def apply(self, data: Data) -> Data:
        """Rows in standard units."""
        return Data(self.inputs(data.x), self.targets(data.y), data.weight)

    def inputs(self, x: Any) -> np.ndarray:
        """Inputs in standard units."""
        rows = np.asarray(x, np.float64)
        if rows.shape[1:] != self.x_shift.shape:
            wanted, given = (str(shape) for shape in (self.x_shift.shape, rows.shape[1:]))
            raise InputError(f"features of shape {wanted}", f"shape {given}", "Pass the features it was trained for.")
        return (rows - self.x_shift[None]) / self.x_scale[None]

    def targets(self, y: Any) -> np.ndarray:
        """Targets in standard units; labels as they are."""
        if self.y_shift is None or self.y_scale is None:
            return np.asarray(y)
        return (_matrix(y) - self.y_shift[None]) / self.y_scale[None]


def _matrix(y: Any) -> np.ndarray:
    values = np.asarray(y, np.float64)
    return values[:, None] if values.ndim == 1 else values


def _kept(shift: np.ndarray, scale: np.ndarray, columns: Any) -> tuple[np.ndarray, np.ndarray]:
    shift, scale = shift.copy(), scale.copy()
    shift[columns], scale[columns] = 0.0, 1.0
    return shift, scale


def _statistics(rows: np.ndarray, weight: Any) -> tuple[np.ndarray, np.ndarray]:
    shift = np.average(rows, axis=0, weights=weight)
    off = rows - shift[None]
    unit = np.where((largest := np.abs(off).max(axis=0)) > 0, largest, 1.0)  # squares neither overflow nor vanish
    scale = unit * np.sqrt(np.average((off / unit[None]) ** 2, axis=0, weights=weight))
    varies = scale > 1e-12 * np.abs(shift)
    return shift, np.where(varies, scale, 1.0)
