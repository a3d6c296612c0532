"""Tail index of a distribution, from draws."""

from typing import Any

import numpy as np

from tunbridge.core.declared import as_floats, checked
from tunbridge.core.errors import InputError


@checked
def hill(x: Any, share: float = 0.02) -> tuple[float, float]:
    r"""Hill's estimate of the tail index :math:`\alpha` and its standard error :cite:p:`hill1975simple`.

    Where :math:`P(|X| > t) \sim t^{-\alpha}`, the k largest of n sizes, :math:`s_1 \ge s_2 \ge \dots`, give

    .. math::

        \hat\alpha = \Big( \frac1k \sum_{i \le k} \log \frac{s_i}{s_{k+1}} \Big)^{-1}, \qquad
        \text{se} = \hat\alpha / \sqrt k.

    For tails that fall faster than any power, such as the normal's, the estimate grows as the share shrinks.

    Parameters
    ----------
    x
        Draws; only their absolute values matter.
    share
        k / n, the share of the draws that form the tail.

    Examples
    --------
    >>> alpha, error = hill(np.random.default_rng(0).standard_cauchy(100_000))
    >>> abs(alpha - 1) < 3 * error
    True
    """
    sizes = np.sort(np.abs(np.ravel(as_floats(x, "x"))))[::-1]
    num = int(share * len(sizes)) if 0.0 < share < 1.0 else 0
    if num < 2 or not sizes[num] > 0:
        raise InputError(
            "a tail of at least two draws, above a nonzero value",
            f"a share of {share} of {len(sizes)} draws",
            "Give more draws, or a larger share below 1.",
        )
    excess = float(np.mean(np.log(sizes[:num] / sizes[num])))
    if excess == 0.0:
        raise InputError("draws of several sizes in the tail", f"{num} of equal size", "Pass draws that vary.")
    alpha = 1.0 / excess
    return alpha, alpha / float(np.sqrt(num))
