"""Rows of a series."""

import numpy as np
import pytest

import tunbridge as tb


def test_rows_hold_the_values_before_each_the_latest_first():
    rows = tb.datasets.lagged(np.arange(6.0), 3)
    np.testing.assert_array_equal(rows.x, [[2, 1, 0], [3, 2, 1], [4, 3, 2]])
    np.testing.assert_array_equal(np.ravel(rows.y), [3, 4, 5])


@pytest.mark.parametrize("series", [[1.0, 2.0], np.ones((5, 1)), "words"])
def test_too_short_a_series_is_refused(series):
    with pytest.raises(tb.InputError):
        tb.datasets.lagged(series, 2)
