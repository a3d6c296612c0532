"""What is read from scikit-learn's files is what scikit-learn reads."""

import numpy as np
import pytest
from sklearn import datasets

import tunbridge as tb

LOADERS = {
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True, scaled=False),
    "breast_cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "digits": lambda: datasets.load_digits(return_X_y=True),
}


@pytest.mark.parametrize("name", LOADERS)
def test_rows_and_targets_are_those_of_scikit_learn(name):
    data, (x, y) = getattr(tb.datasets, name)(), LOADERS[name]()
    np.testing.assert_array_equal(data.x, x.astype(np.float32))
    if name == "diabetes":
        np.testing.assert_array_equal(data.y[:, 0], y)
    else:
        np.testing.assert_array_equal(data.y, y)
        assert data.y.dtype == np.int32
