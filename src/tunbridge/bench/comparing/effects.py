"""What each column of a table does to the prediction, and how sure that is.

The effect of a column at a value is the prediction averaged over rows in which that column alone is set to the value
(partial dependence) :cite:p:`friedman2001greedy`. Each network of the posterior has an effect of its own: their spread
is what is not known about it.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tunbridge.inference.posteriors import Posterior

_ROWS, _VALUES = 60, 15


@dataclasses.dataclass(frozen=True)
class Effect:
    """One column's effect.

    Parameters
    ----------
    name
        The column.
    values
        Where it was set: numbers, or the names of its levels.
    mean, std
        Of the averaged prediction over the posterior's networks, (values, outputs or classes).
    """

    name: str
    values: np.ndarray | tuple[str, ...]
    mean: np.ndarray
    std: np.ndarray

    @property
    def size(self) -> float:
        """How far the prediction moves: the largest range over the values."""
        return float(np.ptp(self.mean, axis=0).max())

    def band(self, least: float = -np.inf, most: float = np.inf) -> tuple[np.ndarray, np.ndarray]:
        """Two standard deviations either side of the mean, within what is possible: 0 and 1 for probabilities."""
        return np.maximum(self.mean - 2 * self.std, least), np.minimum(self.mean + 2 * self.std, most)


def effect(
    posterior: Posterior, x: np.ndarray, name: str, columns: Sequence[int], levels: tuple[str, ...] = ()
) -> Effect:
    """The effect of one column of a table at values between its 2 % and 98 % quantiles, or at each of its levels.

    Parameters
    ----------
    posterior
        Asked in the units of x.
    x
        Rows to average over, of which at most 60 are used.
    name
        The column's.
    columns
        Which numbers of x it became: several where levels are coded one a number.
    levels
        The names of its levels, if it has them.
    """
    rows = x[np.unique(np.linspace(0, len(x) - 1, min(len(x), _ROWS)).round().astype(int))]
    settings = _settings(x[:, list(columns)], levels)
    made = np.repeat(rows[None], len(settings), axis=0)
    made[:, :, list(columns)] = settings[:, None, :]
    functions = np.asarray(posterior.predict(made.reshape(-1, x.shape[1])).functions, np.float64)
    averaged = functions.reshape(len(functions), len(settings), len(rows), -1).mean(axis=2)
    values = levels or settings[:, 0]
    return Effect(name, values, averaged.mean(axis=0), averaged.std(axis=0))


def _settings(numbers: np.ndarray, levels: tuple[str, ...]) -> np.ndarray:
    """(values, numbers) to set the columns to."""
    if not levels:
        return np.unique(np.quantile(numbers[:, 0], np.linspace(0.02, 0.98, _VALUES)))[:, None]
    return np.eye(len(levels)) if numbers.shape[1] == len(levels) else np.arange(len(levels), dtype=float)[:, None]
