import numpy as np
import pytest

import tunbridge as tb


def test_a_column_of_floats_is_a_matrix_and_labels_stay_a_vector():
    x = np.zeros((4, 2))
    assert tb.Data(x, np.zeros(4)).y.shape == (4, 1)
    assert tb.Data(x, np.zeros((4, 3))).y.shape == (4, 3)
    assert tb.Data(x, [0, 1, 2, 1]).y.shape == (4,)
    assert tb.Data(x, [True, False, True, True]).y.dtype == np.int32


def test_a_later_change_of_the_given_array_is_not_seen():
    for num in range(300, 320):  # JAX shares an array's memory where it is aligned
        x = np.ones((num, 300), np.float32)
        data = tb.Data(x, np.zeros(num, np.float32))
        x[:] = 5.0
        assert float(data.x.max()) == 1.0


@pytest.mark.parametrize(
    ("x", "y", "weight", "said"),
    [
        ([[0.0], [np.nan], [1.0]], [1.0, 2.0, 3.0], None, r"in x; got .* 1 of 3 rows \(1\), first x\[1, 0\]"),
        ([[0.0], [1.0], [np.inf]], [1.0, 2.0, 3.0], None, r"finite numbers in x; got .* \(2\), first x\[2, 0\]"),
        ([[[0.0, 1.0]], [[2.0, np.nan]]], [1.0, 2.0], None, r"first x\[1, 0, 1\]"),
        ([[0.0], [1.0]], [[1.0, 2.0], [np.nan, np.nan]], None, r"1 of 2 rows \(1\), first y\[1, 0\]"),
        ([[0.0], [1.0]], [1.0, np.nan], None, r"finite numbers in y; got .* \(1\), first y\[1\]"),
        (np.zeros((0, 2)), np.zeros(0), None, "at least one row; got none"),
        (np.zeros((3, 2)), np.zeros(4), None, "as many rows in y as in x; got 3 in x and 4 in y"),
        (np.zeros(3), np.zeros(3), None, r"x of shape \(points, features\); got shape \(3,\)"),
        (np.zeros((3, 1)), np.zeros((3, 1, 1)), None, r"y of shape .*; got shape \(3, 1, 1\)"),
        ([["a"], ["b"]], [1.0, 2.0], None, "real numbers in x; got dtype"),
        ([[1.0], [2.0]], ["yes", "no"], None, "real numbers in y; got dtype"),
        ([[1.0], [2.0]], [1.0 + 2j, 0.0], None, "real numbers in y"),
        ([[1.0], [2.0]], [1.0, 2.0], [1.0], r"weight of shape \(2,\)"),
        ([[1.0], [2.0]], [1.0, 2.0], [1.0, -1.0], "weights >= 0"),
        ([[1.0], [2.0]], [1.0, 2.0], [0.0, 0.0], "not all 0"),
    ],
)
def test_bad_data_is_refused_with_expected_got_and_do(x, y, weight, said):
    with pytest.raises(tb.InputError, match=said) as caught:
        tb.Data(x, y, weight)
    assert len(caught.value.args) == 3
    assert all(caught.value.args)


def test_many_bad_rows_are_counted_and_the_first_named():
    x = np.zeros((100, 1))
    x[10:30] = np.nan
    with pytest.raises(tb.InputError, match=r"20 of 100 rows \(10, 11, 12, 13, 14, ...\)"):
        tb.Data(x, np.zeros(100))


def test_a_stream_shows_its_first_batch_without_using_it_up():
    batches = [(np.full((2, 1), i, float), np.zeros(2)) for i in range(3)]
    bare = tb.Data.from_batches(iter(batches), num=6)
    assert not bare.restartable
    assert bare.first.x[0, 0] == 0
    assert [int(x[0, 0]) for x, _ in bare.make(0)] == [0, 1, 2]
    assert list(bare.make(1)) == []
    made = tb.Data.from_batches(lambda epoch: batches, num=6)
    assert made.restartable
    assert [int(x[0, 0]) for x, _ in made.make(7)] == [0, 1, 2]


def test_an_empty_stream_is_refused():
    with pytest.raises(tb.InputError, match=r"batches \(x, y\) or \(x, y, weight\), at least one"):
        tb.Data.from_batches(lambda epoch: [], num=6)
    with pytest.raises(tb.InputError, match="at least 1"):
        tb.Data.from_batches(lambda epoch: [(np.zeros((1, 1)), np.zeros(1))], num=0)


def test_numbers_that_do_not_fit_are_floats_or_refused():
    data = tb.Data([[2**40], [2**33 + 5]], [3_000_000_000, 10])
    np.testing.assert_allclose(data.x[:, 0], [2.0**40, 2.0**33], rtol=1e-6)
    np.testing.assert_allclose(data.y[:, 0], [3e9, 10])
    with pytest.raises(tb.InputError, match=r"infinity \(as float32\) in 1 of 2 rows"):
        tb.Data([[1e39], [0.0]], [0.0, 1.0])
