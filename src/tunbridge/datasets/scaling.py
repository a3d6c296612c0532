"""Splitting and standardising: statistics come from the training rows alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key


def split(data: Data, key: Key, share: float = 0.2) -> tuple[Data, Data]:
    """Rows at random in two parts: (train, test), where test has that share."""
    held = round(share * data.num)
    if not 0 < held < data.num:
        raise InputError("rows in both parts", f"{held} of {data.num} for the test", "Choose another share.")
    order = jax.random.permutation(key, data.num)
    test, train = order[:held], order[held:]
    return jax.tree.map(lambda leaf: leaf[train], data), jax.tree.map(lambda leaf: leaf[test], data)


class Scaling(eqx.Module):
    """Shifts and scales that standardise columns; a constant column keeps scale 1.

    Make it with `Scaling.of(train)`. Labels are left as they are.
    """

    x_shift: Array
    x_scale: Array
    y_shift: Array | None
    y_scale: Array | None

    @classmethod
    def of(cls, train: Data, numbers: bool) -> "Scaling":
        """Statistics of the training rows; those of y only where y is `numbers` and not labels."""
        x_shift, x_scale = _statistics(train.x)
        y_shift, y_scale = _statistics(_matrix(train.y)) if numbers else (None, None)
        return cls(x_shift, x_scale, y_shift, y_scale)

    def apply(self, data: Data) -> Data:
        """Rows in standard units."""
        y = data.y
        if self.y_shift is not None and self.y_scale is not None:
            y = (_matrix(y) - self.y_shift[None]) / self.y_scale[None]
        return Data(self.inputs(data.x), y, data.weight)

    def inputs(self, x: Array) -> Array:
        """Inputs in standard units."""
        return (x - self.x_shift[None]) / self.x_scale[None]


def _matrix(y: Array) -> Array:
    return y[:, None] if y.ndim == 1 else y


def _statistics(rows: Array) -> tuple[Array, Array]:
    values = np.asarray(rows, np.float64)
    shift, scale = values.mean(axis=0), values.std(axis=0)
    varies = scale > 1e-12 * np.maximum(np.abs(shift), 1e-300)
    return jnp.asarray(shift), jnp.asarray(np.where(varies, scale, 1.0))
