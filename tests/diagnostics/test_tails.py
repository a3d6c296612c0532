import numpy as np
import pytest

import tunbridge as tb
from tunbridge import diagnostics


@pytest.mark.parametrize("alpha", [0.7, 1.0, 3.0])
def test_the_index_of_a_power_law_is_found_from_any_share(alpha):
    """Pareto tails are exact powers: four standard errors at any share."""
    draws = 1 + np.random.default_rng(0).pareto(alpha, size=50_000)
    for share in (0.01, 0.2, 0.9):
        found, error = diagnostics.hill(draws, share)
        assert abs(found - alpha) < 4 * error
        assert error == pytest.approx(found / np.sqrt(int(share * 50_000)))


def test_cauchy_has_index_one_and_the_normal_none():
    rng = np.random.default_rng(0)
    found, error = diagnostics.hill(rng.standard_cauchy(200_000), 0.01)
    assert abs(found - 1) < 4 * error
    normal = rng.normal(size=200_000)
    assert 5 < diagnostics.hill(normal, 0.01)[0] < diagnostics.hill(normal, 0.001)[0]


def test_no_tail_is_refused():
    for draws, share in ((np.ones(100), 0.0), (np.ones(10), 0.1), (np.zeros(100), 0.1), (np.ones(100), 1.0)):
        with pytest.raises(tb.InputError, match="a tail of"):
            diagnostics.hill(draws, share)
