"""Data to try things on: made from a key, bundled with scikit-learn, or images; and the one way to standardise it.

They are imported when they are asked for: reading a table needs no JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunbridge.datasets.bundled import breast_cancer, diabetes, digits, wine
    from tunbridge.datasets.images import cifar10, fashion_mnist, mnist
    from tunbridge.datasets.scaling import Scaling, split
    from tunbridge.datasets.toy import curve, funnel, moons

_NAMES = {
    "Scaling": "scaling",
    "breast_cancer": "bundled",
    "cifar10": "images",
    "curve": "toy",
    "diabetes": "bundled",
    "digits": "bundled",
    "fashion_mnist": "images",
    "funnel": "toy",
    "mnist": "images",
    "moons": "toy",
    "split": "scaling",
    "wine": "bundled",
}

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


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'tunbridge.datasets' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"tunbridge.datasets.{_NAMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
