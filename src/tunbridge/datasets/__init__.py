"""Data to try things on: made from a key, or bundled with scikit-learn; and the one way to standardise it."""

from tunbridge.datasets.bundled import breast_cancer, diabetes, digits, wine
from tunbridge.datasets.scaling import Scaling, split
from tunbridge.datasets.toy import curve, funnel, moons

__all__ = ["Scaling", "breast_cancer", "curve", "diabetes", "digits", "funnel", "moons", "split", "wine"]
