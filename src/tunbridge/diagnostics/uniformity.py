"""Tests whether ranks are uniform, for simulation-based calibration."""

import dataclasses
from functools import lru_cache
from typing import Any

import numpy as np

from tunbridge.core import tables
from tunbridge.core.declared import as_floats
from tunbridge.core.errors import InputError

LEVEL = 0.01
"""The joint false-alarm rate over all quantities."""
LEAST = 20
"""With fewer independent draws per simulation, ranks look uniform whatever the draws are."""
_CELLS = 100
"""Number of cells of [0, 1]; the distribution function of ranks is compared at the levels between them."""
_REPLICATES = 50_000
"""Number of simulated sets of uniform ranks that give the null distribution of the test statistic."""


def uniformity(ranks: Any) -> float:
    r"""P-value of the hypothesis that ranks in [0, 1] are independent and uniform :cite:p:`sailynoja2022ecdf`.

    The count :math:`R_z` of ranks up to z is binomial. The statistic is the least two-sided tail probability over the
    levels :math:`z = 0.01, \dots, 0.99`,

    .. math::

        \gamma = \min_z 2 \min\big(P(R \le R_z), P(R \ge R_z)\big), \qquad R \sim \text{Bin}(N, z),

    and p is the share of 50,000 simulated sets of uniform ranks in which it is at most as large.

    Examples
    --------
    >>> even = (np.arange(200) + 0.5) / 200
    >>> uniformity(even) > 0.5, uniformity(even**2) < 1e-3
    (True, True)
    """
    values = np.ravel(as_floats(ranks, "ranks"))
    if not values.size or not ((values >= 0) & (values <= 1)).all():
        raise InputError(
            "ranks from 0 to 1", f"{values[:3]} of {values.size}", "Divide the ranks by the number of draws."
        )
    counts = np.histogram(values, _CELLS, (0.0, 1.0))[0]
    null = _null(values.size)
    return float((1 + np.searchsorted(null, _least_tail(counts[None])[0] * (1 + 1e-9), "right")) / (1 + len(null)))


def band(num: int, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Levels z, and the lower and upper simultaneous bounds on the distribution function of `num` uniform ranks there.

    The function leaves the bounds at some level with probability `level`.
    """
    from scipy import stats

    gamma = np.quantile(_null(num), level)
    z = np.arange(1, _CELLS) / _CELLS
    return z, stats.binom.ppf(gamma / 2, num, z) / num, stats.binom.isf(gamma / 2, num, z) / num


def _least_tail(counts: np.ndarray) -> np.ndarray:
    """Test statistic of each row of counts (sets, cells)."""
    num = int(counts[0].sum())
    below = np.cumsum(counts, axis=1)[:, :-1]
    return _tails(num)[below, np.arange(_CELLS - 1)].min(axis=1)


@lru_cache(maxsize=8)
def _tails(num: int) -> np.ndarray:
    """Two-sided tail probabilities of each count, (num + 1, levels)."""
    from scipy import stats

    count, z = np.arange(num + 1)[:, None], np.arange(1, _CELLS)[None] / _CELLS
    return 2 * np.minimum(stats.binom.cdf(count, num, z), stats.binom.sf(count - 1, num, z))


@lru_cache(maxsize=8)
def _null(num: int) -> np.ndarray:
    """Simulated test statistics under the hypothesis, sorted."""
    rng = np.random.default_rng(0)
    blocks = [rng.multinomial(num, np.full(_CELLS, 1 / _CELLS), 5_000) for _ in range(_REPLICATES // 5_000)]
    return np.sort(np.concatenate([_least_tail(block) for block in blocks]))


@dataclasses.dataclass(frozen=True)
class Calibration(tables.Table):
    """Ranks of the truth among draws, over data sets simulated from the prior: uniform if the draws are right.

    Parameters
    ----------
    ranks
        For each quantity, the share of draws below the truth in each simulation, (simulations,), from 0 to 1.
    draws
        For each quantity, the number of nearly independent draws among which the truth was ranked, (simulations,).
    level
        Joint false-alarm rate: a quantity is doubtful if its p-value is below `level` / number of quantities.
    """

    caption = "simulation-based calibration"

    ranks: dict[str, np.ndarray]
    draws: dict[str, np.ndarray]
    level: float = LEVEL

    @property
    def p_values(self) -> dict[str, float]:
        """P-value of uniform ranks for each quantity; see `uniformity`."""
        return {name: uniformity(values) for name, values in self.ranks.items()}

    @property
    def doubtful(self) -> list[str]:
        """Quantities whose ranks are not uniform."""
        return [name for name, p in self.p_values.items() if p < self.level / len(self.ranks)]

    @property
    def passes(self) -> bool:
        """Whether no quantity is doubtful and there were enough draws to tell."""
        return not self.doubtful and self._least >= LEAST

    @property
    def _least(self) -> float:
        return float(min(np.median(num) for num in self.draws.values()))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each quantity's p-value, mean rank (1/2 if unbiased), spread of ranks (1 if right) and number of draws.

        A spread above 1 means that the draws are too narrow, one below 1 that they are too wide.
        """
        return [
            {
                "quantity": name,
                "p": p,
                "mean rank": float(self.ranks[name].mean()),
                "spread": float(self.ranks[name].std() * np.sqrt(12)),
                "draws": float(np.median(self.draws[name])),
            }
            for name, p in self.p_values.items()
        ]

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict, as sentences."""
        num = len(next(iter(self.ranks.values())))
        rate = f"{num} simulations; correct draws would fail this test with probability at most {self.level:.0%}."
        if self.doubtful:
            return rate, f"Ranks are not uniform: {', '.join(self.doubtful)}. The draws are not those of the posterior."
        if self._least < LEAST:
            return rate, f"There are {self._least:.0f} independent draws per simulation, too few to tell. Draw more."
        return rate, "Ranks are uniform."
