"""Splitting and standardising data, with statistics computed on the training rows alone."""

from typing import Any

import jax
import numpy as np
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.declared import Module, checked
from tunbridge.core.errors import InputError
from tunbridge.core.loaders import as_table
from tunbridge.core.types import Key


@checked
def split(data: Any, key: Key, share: float = 0.2) -> tuple[Data, Data]:
    """Split `Data` or a pair (x, y) at random into (train, test), where `share` is the fraction of test rows."""
    table = as_table(data)
    train, test = split_rows(table.num, key, share)
    return jax.tree.map(lambda leaf: leaf[train], table), jax.tree.map(lambda leaf: leaf[test], table)


def split_rows(num: int, key: Key, share: float = 0.2) -> tuple[Array, Array]:
    """Split row indices at random into (train, test), where `share` is the fraction of test rows."""
    num_test = round(share * num) if 0.0 < share < 1.0 else 0
    if not 0 < num_test < num:
        raise InputError("rows in both parts", f"a share of {share} of {num} for the test", "Choose another share.")
    order = jax.random.permutation(key, num)
    return order[num_test:], order[:num_test]


class Scaling(Module):
    """Shifts and scales that standardise columns, in float64; a constant column has scale 1.

    Construct it with `Scaling.of`. Where y is not scaled, its shift and scale are None.
    """

    x_shift: np.ndarray
    x_scale: np.ndarray
    y_shift: np.ndarray | None
    y_scale: np.ndarray | None

    @classmethod
    def of(cls, x: Any, y: Any = None, weight: Any = None) -> "Scaling":
        """Return the scaling with means and standard deviations of the training rows, weighted by `weight`.

        Leave y out if it holds labels. Statistics are computed in float64 from the values as given, so that columns far
        from zero keep their digits.
        """
        x_shift, x_scale = _statistics(np.asarray(x, np.float64), weight)
        y_shift, y_scale = (None, None) if y is None else _statistics(_matrix(y), weight)
        return cls(x_shift, x_scale, y_shift, y_scale)

    def keeping(self, x: Any = (), y: Any = ()) -> "Scaling":
        """Return a copy that leaves some columns of x and y unscaled, given by their indices or a mask."""
        x_shift, x_scale = _unscaled(self.x_shift, self.x_scale, x)
        if self.y_shift is None or self.y_scale is None:
            return Scaling(x_shift, x_scale, None, None)
        y_shift, y_scale = _unscaled(self.y_shift, self.y_scale, y)
        return Scaling(x_shift, x_scale, y_shift, y_scale)

    def apply(self, data: Any) -> Data:
        """Return `Data`, or a pair (x, y), with inputs and targets in standard units."""
        table = as_table(data)
        return Data(self.inputs(table.x), self.targets(table.y), table.weight)

    def inputs(self, x: Any) -> np.ndarray:
        """Return inputs in standard units."""
        rows = np.asarray(x, np.float64)
        if rows.shape[1:] != self.x_shift.shape:
            expected, given = (str(shape) for shape in (self.x_shift.shape, rows.shape[1:]))
            raise InputError(f"features of shape {expected}", f"shape {given}", "Pass the features it was trained for.")
        return (rows - self.x_shift[None]) / self.x_scale[None]

    def targets(self, y: Any) -> np.ndarray:
        """Return targets in standard units; labels unchanged."""
        if self.y_shift is None or self.y_scale is None:
            return np.asarray(y)
        return (_matrix(y) - self.y_shift[None]) / self.y_scale[None]


def _matrix(y: Any) -> np.ndarray:
    values = np.asarray(y, np.float64)
    return values[:, None] if values.ndim == 1 else values


def _unscaled(shift: np.ndarray, scale: np.ndarray, columns: Any) -> tuple[np.ndarray, np.ndarray]:
    shift, scale = shift.copy(), scale.copy()
    shift[columns], scale[columns] = 0.0, 1.0
    return shift, scale


def _statistics(rows: np.ndarray, weight: Any) -> tuple[np.ndarray, np.ndarray]:
    shift = np.average(rows, axis=0, weights=weight)
    centred = rows - shift[None]
    unit = np.where((largest := np.abs(centred).max(axis=0)) > 0, largest, 1.0)  # squares neither overflow nor vanish
    scale = unit * np.sqrt(np.average((centred / unit[None]) ** 2, axis=0, weights=weight))
    varies = scale > 1e-12 * np.abs(shift)
    return shift, np.where(varies, scale, 1.0)
