"""Groups of chains that stay in different modes."""

from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from tunbridge.core.declared import as_floats, checked
from tunbridge.core.errors import InputError

APART = 1.0
"""The distance of means, in standard deviations within a chain, above which two chains are in different modes."""


@checked
def modes(draws: Any, apart: float = APART) -> list[list[int]]:
    r"""Chains grouped by mode, from draws (chains, draws, ...quantities).

    Two chains are linked unless the means of some quantity differ by more than `apart` standard deviations,
    :math:`|m_a - m_b| > \text{apart} \, \sqrt{(s_a^2 + s_b^2) / 2}`; the groups are the connected components. This
    measures an effect size and is no significance test: slowly mixing chains of one mode have a large R-hat, but form
    one group.

    Examples
    --------
    >>> values = np.random.default_rng(0).normal(size=(4, 200, 5))
    >>> values[1] += 3.0
    >>> modes(values)
    [[0, 2, 3], [1]]
    """
    values = as_floats(draws, "draws")
    if values.ndim < 2 or not values.size:
        raise InputError("draws of shape (chains, draws, ...)", f"shape {values.shape}", "Keep the axis of chains.")
    values = values.reshape(*values.shape[:2], -1)
    mean, variance = values.mean(axis=1), values.var(axis=1)
    gap = np.abs(mean[:, None] - mean[None])
    spread = np.sqrt((variance[:, None] + variance[None]) / 2)
    linked = ~(gap > apart * spread).any(axis=-1)
    num, group = connected_components(linked, directed=False)
    return [np.flatnonzero(group == number).tolist() for number in range(num)]
