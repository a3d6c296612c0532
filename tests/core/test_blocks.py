"""Rows in blocks of one size."""

import numpy as np
import pytest

from tunbridge.core.blocks import blocks, blockwise, few_sizes, filled


@pytest.mark.parametrize(("num", "size"), [(1, 4), (4, 4), (5, 4), (12, 4)])
def test_every_row_comes_back_once_and_every_block_is_full(num, size):
    x, seen = np.arange(num), []

    def double(own, fill):
        seen.append(fill(x[own]))
        return 2 * seen[-1], seen[-1][:, None] * np.ones(3)

    twice, wide = blockwise(double, num, size)
    np.testing.assert_array_equal(twice, 2 * x)
    np.testing.assert_array_equal(wide, np.repeat(x[:, None], 3, axis=1))
    assert [len(rows) for rows in seen] == [size] * -(-num // size)
    assert set(seen[-1]) <= set(x)
    assert [own.stop - own.start for own in blocks(num, size)] == [len(x[s : s + size]) for s in range(0, num, size)]


def test_what_fills_up_is_the_last_row():
    np.testing.assert_array_equal(filled(np.array([[1, 2], [3, 4]]), 4), [[1, 2], [3, 4], [3, 4], [3, 4]])


def test_a_few_sizes_serve_all_numbers():
    assert {few_sizes(num, 8) for num in range(1, 65)} == {8, 16, 32, 64}
