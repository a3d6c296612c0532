"""Means over splits and tasks, with standard errors that account for the rows that splits share."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from tunbridge.core.tables import written


class Interval(NamedTuple):
    """A mean, its standard error, and the ends of its confidence interval; all but the mean are NaN for one value."""

    mean: float
    error: float
    low: float
    high: float


UNKNOWN = Interval(np.nan, np.nan, np.nan, np.nan)


def naive_error(values: Sequence[float]) -> float:
    """Standard deviation divided by sqrt(J), as papers print it: too small, since splits share rows.

    Examples
    --------
    >>> round(naive_error([1.0, 2.0, 3.0, 4.0]), 4)
    0.6455
    """
    return _spread(values) / len(values) ** 0.5


def over_splits(values: Sequence[float], ratio: float, level: float) -> Interval:
    """Mean over splits of one task, with the error sqrt(1/J + n_test/n_train) s of :cite:t:`nadeau2003inference`.

    Parameters
    ----------
    values
        One for each of the J splits.
    ratio
        Number of test rows divided by that of training rows.
    level
        Confidence level of the interval.

    Examples
    --------
    >>> round(over_splits([1.0, 2.0, 3.0, 4.0], 1 / 9, 0.95).error, 4)
    0.7758
    """
    return _student(values, _spread(values) * (1 / len(values) + ratio) ** 0.5, level)


def over_tasks(means: Sequence[float], level: float) -> Interval:
    """Mean over tasks, which share no rows, with Student's interval for the mean over a population of such tasks."""
    return _student(means, naive_error(means), level)


def plus_minus(mean: float, error: float) -> str:
    """Format a mean and its error as "mean±error", to two significant digits of the error.

    Examples
    --------
    >>> plus_minus(2.9012, 0.1834), plus_minus(2.9012, float("nan"))
    ('2.90±0.18', '2.901')
    """
    if not math.isfinite(error) or error <= 0:
        return written(mean)
    digits = min(max(1 - math.floor(math.log10(error)), 0), 8)
    return f"{mean:.{digits}f}±{error:.{digits}f}"


def _student(values: Sequence[float], error: float, level: float) -> Interval:
    mean = float(np.mean(values))
    half = error * float(stats.t.ppf((1 + level) / 2, len(values) - 1)) if len(values) > 1 else np.nan
    return Interval(mean, error, mean - half, mean + half)


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 and np.isfinite(values).all() else np.nan
