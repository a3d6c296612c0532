"""Data to try things on: made from a key, bundled with scikit-learn, or images; and the one way to standardise it."""

from tunbridge.datasets.bundled import breast_cancer, diabetes, digits, wine
from tunbridge.datasets.images import cifar10, fashion_mnist, mnist
from tunbridge.datasets.scaling import Scaling, split
from tunbridge.datasets.toy import curve, funnel, moons

__all__ = [
    "Scaling",
    "breast_cancer",
    "cifar10",
    "curve",
    "diabetes",
    "digits",
    "fashion_mnist",
    "funnel",
    "mnist",
    "moons",
    "split",
    "wine",
]
