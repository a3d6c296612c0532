import numpy as np
import pytest

import tunbridge as tb
from tunbridge import diagnostics
from tunbridge.diagnostics import discrepancy


def of_normals(shift, scale, length, dimensions):
    """MMD^2 of N(0, I) and N(shift, scale^2 I): E k = (l^2 / (l^2 + v))^(d/2) exp(-|m|^2 / 2 (l^2 + v))."""

    def mean_kernel(variance, distance):
        wide = length**2 + variance
        return (length**2 / wide) ** (dimensions / 2) * np.exp(-0.5 * distance**2 / wide)

    apart = shift * np.sqrt(dimensions)
    return mean_kernel(2, 0) + mean_kernel(2 * scale**2, 0) - 2 * mean_kernel(1 + scale**2, apart)


def test_it_is_that_of_two_normals_on_average():
    """40 pairs of 200 draws; the mean within four standard errors of the formula, also where both are the same."""
    rng = np.random.default_rng(0)
    for shift, scale in ((0.0, 1.0), (0.5, 1.0), (0.0, 1.7)):
        x, y = rng.normal(size=(2, 40, 200, 3))
        found = [diagnostics.mmd(a, shift + scale * b, scale=1.3) for a, b in zip(x, y, strict=True)]
        assert abs(np.mean(found) - of_normals(shift, scale, 1.3, 3)) < 4 * np.std(found) / np.sqrt(40)


def test_it_is_the_same_in_blocks_of_any_size(monkeypatch):
    x, y = np.random.default_rng(0).normal(size=(2, 31, 2))
    wanted = diagnostics.mmd(x, y)
    monkeypatch.setattr(discrepancy, "_BLOCK_NUMBERS", 70)
    assert diagnostics.mmd(x, y) == pytest.approx(wanted, rel=1e-12)


def test_draws_that_cannot_be_compared_are_refused():
    with pytest.raises(tb.InputError, match="two sets"):
        diagnostics.mmd(np.zeros((3, 2)), np.zeros((3, 1)))
    with pytest.raises(tb.InputError, match="a scale above 0"):
        diagnostics.mmd(np.zeros((3, 2)), np.zeros((3, 2)))
