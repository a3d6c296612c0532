"""Chains that stay in different places."""

from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from tunbridge.core.errors import InputError

APART = 1.0
"""How many standard deviations within a chain set two modes apart."""


def modes(draws: Any, apart: float = APART) -> list[list[int]]:
    r"""Chains grouped by where they stay, from draws (chains, draws, ...quantities).

    Two chains are linked unless the means of some quantity differ by more than `apart` standard deviations,
    :math:`|m_a - m_b| > \text{apart} \, \sqrt{(s_a^2 + s_b^2) / 2}`; groups are what links connect. This is an effect
    that is seen in predictions, not a test: chains of one mode that mix slowly have a large R-hat and one group.

    Examples
    --------
    >>> values = np.random.default_rng(0).normal(size=(4, 200, 5))
    >>> values[1] += 3.0
    >>> modes(values)
    [[0, 2, 3], [1]]
    """
    values = np.asarray(draws, np.float64)
    if values.ndim < 2:
        raise InputError("draws of shape (chains, draws, ...)", f"shape {values.shape}", "Keep the axis of chains.")
    values = values.reshape(*values.shape[:2], -1)
    mean, variance = values.mean(axis=1), values.var(axis=1)
    gap = np.abs(mean[:, None] - mean[None])
    spread = np.sqrt((variance[:, None] + variance[None]) / 2)
    linked = ~(gap > apart * spread).any(axis=-1)
    num, group = connected_components(linked, directed=False)
    return [np.flatnonzero(group == one).tolist() for one in range(num)]
