"""Ranks are called even as often as promised, and bands hold what tests let pass."""

import numpy as np
import pytest

import tunbridge as tb
from tunbridge.diagnostics import uniformity
from tunbridge.diagnostics.uniformity import band


def test_p_values_of_even_ranks_are_no_smaller_than_chance():
    """2,000 sets of 100: 5 standard errors, fixed seed."""
    rng = np.random.default_rng(1)
    p = np.array([uniformity(rng.uniform(size=100)) for _ in range(2000)])
    for level in (0.01, 0.05, 0.2):
        assert abs(np.mean(p <= level) - level) < 5 * np.sqrt(level / 2000)


def test_a_set_leaves_the_band_exactly_when_its_p_value_is_below_the_level():
    rng = np.random.default_rng(2)
    z, low, high = band(100, 0.05)
    for power in (1.0, 1.0, 1.2, 1.4, 2.0):
        ranks = np.sort(rng.uniform(size=100) ** power)
        share = np.searchsorted(ranks, z) / 100
        outside = bool(((share < low - 1e-9) | (share > high + 1e-9)).any())
        assert outside == (uniformity(ranks) < 0.05)


def test_ranks_that_are_too_narrow_too_wide_or_off_centre_are_seen():
    rng = np.random.default_rng(3)
    for ranks in (rng.beta(2, 2, 200), rng.beta(0.6, 0.6, 200), rng.beta(1.5, 1, 200)):
        assert uniformity(ranks) < 1e-3


def test_what_is_no_rank_is_refused():
    with pytest.raises(tb.InputError, match="ranks from 0 to 1"):
        uniformity([3.0, 4.0])
