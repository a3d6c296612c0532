"""The effect of each column of a table on the prediction (partial dependence), with its uncertainty.

The effect of a column at a value is the prediction averaged over rows with that column alone set to the value
:cite:p:`friedman2001greedy`. Each network of the posterior has an effect of its own: their spread is the epistemic
uncertainty of the effect.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tunbridge.core.blocks import evenly
from tunbridge.inference.posteriors import Posterior

_ROWS, _VALUES = 60, 15


@dataclasses.dataclass(frozen=True)
class Effect:
    """The effect of one column on the prediction.

    Parameters
    ----------
    name
        The column.
    values
        The values it was set to: numbers, or the names of its levels.
    mean, std
        Mean and standard deviation of the averaged prediction over the posterior's networks, (values, outputs or
        classes).
    """

    name: str
    values: np.ndarray | tuple[str, ...]
    mean: np.ndarray
    std: np.ndarray

    @property
    def size(self) -> float:
        """Range of the prediction over the values, for the output where it is largest."""
        return float(np.ptp(self.mean, axis=0).max())

    def band(self, least: float = -np.inf, most: float = np.inf) -> tuple[np.ndarray, np.ndarray]:
        """Mean minus and plus two standard deviations, clipped to [least, most], such as 0 and 1 for probabilities."""
        return np.maximum(self.mean - 2 * self.std, least), np.minimum(self.mean + 2 * self.std, most)


def effect(
    posterior: Posterior, x: np.ndarray, name: str, columns: Sequence[int], levels: tuple[str, ...] = ()
) -> Effect:
    """Effect of one column of a table at values between its 2 % and 98 % quantiles, or at each of its levels.

    Parameters
    ----------
    posterior
        A posterior that predicts in the units of x.
    x
        Rows to average over; at most 60 of them are used.
    name
        The column's name.
    columns
        The features of x that encode it: several if its levels are one-hot encoded.
    levels
        The names of its levels, if it is categorical.
    """
    rows = x[evenly(len(x), _ROWS)]
    settings = _settings(x[:, list(columns)], levels)
    made = np.repeat(rows[None], len(settings), axis=0)
    made[:, :, list(columns)] = settings[:, None, :]
    functions = np.asarray(posterior.predict(made.reshape(-1, x.shape[1])).functions, np.float64)
    averaged = functions.reshape(len(functions), len(settings), len(rows), -1).mean(axis=2)
    values = levels or settings[:, 0]
    return Effect(name, values, averaged.mean(axis=0), averaged.std(axis=0))


def _settings(numbers: np.ndarray, levels: tuple[str, ...]) -> np.ndarray:
    """The settings of the encoded features, (values, features)."""
    if not levels:
        return np.unique(np.quantile(numbers[:, 0], np.linspace(0.02, 0.98, _VALUES)))[:, None]
    return np.eye(len(levels)) if numbers.shape[1] == len(levels) else np.arange(len(levels), dtype=float)[:, None]
