"""Real data that comes with scikit-learn."""

from tunbridge.core.data import Data


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
