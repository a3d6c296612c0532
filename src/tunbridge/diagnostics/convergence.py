"""Convergence of chains, and the precision of their averages, computed by ArviZ.

Each function takes draws (chains, draws, ...quantities) and returns an array (...quantities). ArviZ processes the
quantities one by one, about a millisecond each for 4,000 draws.
"""

from typing import Any

import numpy as np

from tunbridge.core.declared import as_floats
from tunbridge.core.errors import InputError

_LEAST = 4
"""The least number of draws: chains are split into halves, and each half needs a variance."""


def rhat(draws: Any) -> np.ndarray:
    """Rank-normalised split R-hat, the larger of bulk and tail :cite:p:`vehtari2021rank`.

    It is near 1 where chains agree; above 1.01 the chains should run longer. It is NaN for a constant quantity or a
    single chain, and infinite for chains stuck at different values.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> agree = rng.normal(size=(4, 500, 3))
    >>> apart = agree + np.arange(4)[:, None, None]
    >>> bool((rhat(agree) < 1.01).all()), bool((rhat(apart) > 1.5).all())
    (True, True)
    """
    values = _checked(draws)
    if len(values) < 2:
        return np.full(values.shape[2:], np.nan)
    return _diagnostic("rhat", values)


def ess_bulk(draws: Any) -> np.ndarray:
    """Bulk effective sample size (rank-normalised): how many independent draws say as much about the centre."""
    return _diagnostic("ess", _checked(draws))


def ess_tail(draws: Any) -> np.ndarray:
    """Tail effective sample size: the smaller of those of the 5 % and 95 % quantiles."""
    return _diagnostic("ess", _checked(draws), method="tail", prob=(0.05, 0.95))


def mcse(draws: Any) -> np.ndarray:
    """Monte Carlo standard error of the mean."""
    return _diagnostic("mcse", _checked(draws))


def _diagnostic(name: str, values: np.ndarray, **options: Any) -> np.ndarray:
    from arviz_stats.base import array_stats

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(getattr(array_stats, name)(values, chain_axis=0, draw_axis=1, **options), np.float64)


def _checked(draws: Any) -> np.ndarray:
    values = as_floats(draws, "draws")
    if values.ndim < 2 or values.shape[1] < _LEAST or not values.size:
        raise InputError(
            f"draws of shape (chains, draws, ...) with at least {_LEAST} draws", f"shape {values.shape}", "Draw more."
        )
    return values
