"""Real data that comes with scikit-learn."""

from typing import TYPE_CHECKING

from tunbridge.core.data import Data

if TYPE_CHECKING:
    import pyarrow as pa


def diabetes() -> Data:
    """Disease progression of 442 patients from 10 measurements, unscaled."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    return Data(x, y.astype(float))


def breast_cancer() -> Data:
    """569 tumours, 30 measurements, malignant (0) or benign (1)."""
    from sklearn.datasets import load_breast_cancer

    return Data(*load_breast_cancer(return_X_y=True))


def wine() -> Data:
    """178 wines, 13 measurements, three growers."""
    from sklearn.datasets import load_wine

    return Data(*load_wine(return_X_y=True))


def digits() -> Data:
    """1,797 handwritten digits of 8 x 8 pixels, as 64 numbers from 0 to 16."""
    from sklearn.datasets import load_digits

    return Data(*load_digits(return_X_y=True))


def as_table(name: str) -> "pa.Table":
    """One of these sets with the names of its columns and classes; the target comes last."""
    import numpy as np
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
