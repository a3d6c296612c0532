"""MNIST digits, with shifted test digits (noise, blur, low contrast, rotation) and letters."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tunbridge.bench.benchmark.task import Held, Rows
from tunbridge.datasets import mnist

_TRAIN, _TEST, _CHANGED = 5000, 2000, 500
SEVERITIES = (1, 2, 3, 4, 5)
_NOISE = (0.1, 0.2, 0.3, 0.45, 0.6)
_BLUR = (0.5, 0.8, 1.1, 1.5, 2.0)
_CONTRAST = (0.75, 0.5, 0.35, 0.2, 0.1)
_DEGREES = (15.0, 30.0, 45.0, 60.0, 90.0)


def noise(images: np.ndarray, severity: int) -> np.ndarray:
    """Add normal noise to each pixel, with a standard deviation from 0.1 to 0.6."""
    rng = np.random.default_rng(severity)
    return np.clip(images + _NOISE[severity - 1] * rng.normal(size=images.shape), 0.0, 1.0)


def blur(images: np.ndarray, severity: int) -> np.ndarray:
    """Blur each image with a Gaussian kernel of standard deviation 0.5 to 2 pixels."""
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(images, (0.0, _BLUR[severity - 1], _BLUR[severity - 1]))


def contrast(images: np.ndarray, severity: int) -> np.ndarray:
    """Reduce the contrast of each image around its mean, to between 75 % and 10 %."""
    mean = images.mean(axis=(1, 2), keepdims=True)
    return mean + _CONTRAST[severity - 1] * (images - mean)


def rotation(images: np.ndarray, severity: int) -> np.ndarray:
    """Rotate each image by 15 to 90 degrees."""
    from scipy.ndimage import rotate

    return np.clip(rotate(images, _DEGREES[severity - 1], axes=(2, 1), reshape=False, order=1), 0.0, 1.0)


CHANGES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "noise": noise,
    "blur": blur,
    "contrast": contrast,
    "rotation": rotation,
}
"""Functions by name that shift images (points, height, width) in [0, 1] by a severity from 1 to 5."""


def _flat(images: np.ndarray) -> np.ndarray:
    """Flatten images to rows of pixels, standardised by about the mean and standard deviation of MNIST."""
    return ((images.reshape(len(images), -1) - 0.13) / 0.31).astype(np.float32)


def train(split: int) -> Rows:
    """A random 5,000 of the training digits."""
    digits, _ = mnist()
    chosen = np.random.default_rng(split).choice(digits.num, _TRAIN, replace=False)
    return Rows(_flat(np.asarray(digits.x[..., 0])[chosen]), np.asarray(digits.y)[chosen])


def held(split: int) -> Held:
    """A random 2,000 of the test digits, 500 of them shifted, and letters if notmnist_test.npz is in TUNBRIDGE_DATA."""
    _, digits = mnist()
    rng = np.random.default_rng(split)
    chosen = rng.choice(digits.num, _TEST, replace=False)
    images, labels = np.asarray(digits.x[..., 0])[chosen], np.asarray(digits.y)[chosen]
    first_images, first_labels = images[:_CHANGED], labels[:_CHANGED]
    shifted = {
        name: {severity: Rows(_flat(change(first_images, severity)), first_labels) for severity in SEVERITIES}
        for name, change in CHANGES.items()
    }
    return Held(Rows(_flat(images), labels), outside=_letters(rng), shifted=shifted)


def _letters(rng: np.random.Generator) -> dict[str, np.ndarray]:
    path = Path(os.environ.get("TUNBRIDGE_DATA", "")) / "notmnist_test.npz"
    if not path.is_file():
        return {}
    with np.load(path) as file:
        letters = file["x"]
    return {"notMNIST": _flat(letters[rng.choice(len(letters), _TEST, replace=False)] / 255.0)}
