"""Real data bundled with scikit-learn, whose files are read without importing it."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tunbridge.core.data import Data

if TYPE_CHECKING:
    import pyarrow as pa


def diabetes() -> Data:
    """Return the diabetes data: disease progression of 442 patients from 10 measurements, unscaled."""
    return Data(_numbers("diabetes_data_raw.csv.gz", None), _numbers("diabetes_target.csv.gz", None))


def breast_cancer() -> Data:
    """Return the breast cancer data: 569 tumours, 30 measurements, malignant (0) or benign (1)."""
    return _labelled(_numbers("breast_cancer.csv", ",", head=1))


def wine() -> Data:
    """Return the wine data: 178 wines, 13 measurements, three growers as classes."""
    return _labelled(_numbers("wine_data.csv", ",", head=1))


def digits() -> Data:
    """Return the digits data: 1,797 handwritten digits of 8 x 8 pixels, as 64 features from 0 to 16."""
    return _labelled(_numbers("digits.csv.gz", ","))


def _labelled(rows: np.ndarray) -> Data:
    """Data whose labels are the last column of `rows`."""
    return Data(rows[:, :-1], rows[:, -1].astype(int))


def _numbers(file: str, delimiter: str | None, head: int = 0) -> np.ndarray:
    """Read one of scikit-learn's files, after `head` header lines; the package is located without importing it."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError("Bundled tables are part of scikit-learn: pip install scikit-learn.")
    folder = Path(spec.submodule_search_locations[0]) / "datasets" / "data"
    return np.loadtxt(folder / file, delimiter=delimiter, skiprows=head)


def as_table(name: str) -> "pa.Table":
    """Return one of these data sets as a table with names of columns and classes; the target is the last column."""
    import pyarrow as pa
    from sklearn import datasets

    load = {
        "diabetes": lambda: datasets.load_diabetes(scaled=False),
        "breast_cancer": datasets.load_breast_cancer,
        "wine": datasets.load_wine,
        "digits": datasets.load_digits,
    }[name]
    bunch, target = (
        load(),
        {"diabetes": "progression", "breast_cancer": "diagnosis", "wine": "grower", "digits": "digit"},
    )
    columns = {label.replace(" ", "_"): np.asarray(bunch.data)[:, i] for i, label in enumerate(bunch.feature_names)}
    labels = getattr(bunch, "target_names", None)
    columns[target[name]] = bunch.target if labels is None else np.asarray(labels)[bunch.target].astype(str)
    return pa.table(columns)
