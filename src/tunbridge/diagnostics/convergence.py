"""Whether chains have forgotten their starts, and what their averages are worth: ArviZ's figures of each quantity.

Each takes draws (chains, draws, ...quantities) and gives an array (...quantities). ArviZ goes through the quantities
one by one, about a millisecond each for 4,000 draws.
"""

from typing import Any

import numpy as np

from tunbridge.core.errors import InputError

_LEAST = 4
"""Chains are split in halves, and a half needs a variance."""


def rhat(draws: Any) -> np.ndarray:
    """Rank-normalised split R-hat, the larger of bulk and tail :cite:p:`vehtari2021rank`.

    Near 1 where chains agree; above 1.01 they should run longer. Of a constant it is NaN, of chains that stand still
    at different values infinite, and of a single chain NaN.

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
    return _figure("rhat", values)


def ess_bulk(draws: Any) -> np.ndarray:
    """Effective sample size of the rank-normalised draws: how many independent ones say as much about the middle."""
    return _figure("ess", _checked(draws))


def ess_tail(draws: Any) -> np.ndarray:
    """The lesser effective sample size of the 5 % and 95 % quantiles."""
    return _figure("ess", _checked(draws), method="tail", prob=(0.05, 0.95))


def mcse(draws: Any) -> np.ndarray:
    """Monte Carlo standard error of the mean."""
    return _figure("mcse", _checked(draws))


def _figure(name: str, values: np.ndarray, **options: Any) -> np.ndarray:
    from arviz_stats.base import array_stats

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(getattr(array_stats, name)(values, chain_axis=0, draw_axis=1, **options), np.float64)


def _checked(draws: Any) -> np.ndarray:
    values = np.asarray(draws, np.float64)
    if values.ndim < 2 or values.shape[1] < _LEAST:
        raise InputError(
            f"draws of shape (chains, draws, ...) with at least {_LEAST} draws", f"shape {values.shape}", "Draw more."
        )
    return values
