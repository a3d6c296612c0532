"""Real tables and images, their splits, and the model for each."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import train_test_split

import tunbridge as tb
from tunbridge.inference.standardised import fit_standardised
from tunbridge.model import defaults

FOLDER = Path(os.environ.get("TUNBRIDGE_DATA", "."))
UCI = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "naval", "protein")
CLASSES = ("growers", "breast_cancer", "digits", "mnist")
IMAGES = 2000
"""Number of training images, of test images and of out-of-distribution images."""
_MANY, _BATCH, _BATCH_OF_IMAGES = 5000, 1000, 500


def mushrooms():
    """The table with a column for each value of each attribute, and whether each mushroom is poisonous."""
    lines = (FOLDER / "mushroom.csv").read_text().splitlines()
    names, cells = lines[0].split(","), np.array([line.split(",") for line in lines[1:]])
    label = names.index("edibility")
    columns = [
        column == value for number, column in enumerate(cells.T) if number != label for value in np.unique(column)
    ]
    return np.stack(columns, axis=1).astype(float), (cells[:, label] == "p").astype(int)


class Task(NamedTuple):
    """A data set with its model: training rows and test rows."""

    model: tb.Model
    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    batch_size: int | None = None
    full: bool = True
    """Whether `tb.Laplace` uses the full matrix by default."""
    standardise: bool = True
    strange: np.ndarray | None = None
    """Out-of-distribution inputs."""

    @property
    def of_classes(self) -> bool:
        return self.test[1].dtype.kind in "iu"

    def fit(self, method: Any, key: Any, **options: Any) -> tb.Standardised:
        """Fit a method; the posterior predicts in the original units of the rows."""
        if self.standardise:
            return fit_standardised(method, self.model, *self.train, key=key, progress=False, **options)
        posterior = method.fit(self.model, tb.Data(*self.train), key=key, progress=False, **options)
        width = self.train[0].shape[1]
        scaling = tb.datasets.Scaling(np.zeros(width), np.ones(width), None, None)
        return tb.Standardised(posterior.model, posterior.key, posterior, scaling)


def load(name: str, split: int) -> Task:
    """Load a set by name: a public split of a UCI table, or a random split by seed."""
    if name in UCI:
        return _uci(name, split)
    return _mnist(split) if name == "mnist" else _bundled(name, split)


def uci_rows(name: str, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x and y for training, x and y for testing, of a public split of a UCI table."""
    file = np.load(FOLDER / "uci" / f"{name}.npz")
    x, y, num = file["x"], file["y"].reshape(-1), int(file["n"])
    held = np.unpackbits(file["test"], axis=1)[split, :num].astype(bool)
    return x[~held], y[~held], x[held], y[held]


def _uci(name: str, split: int) -> Task:
    x, y, x_test, y_test = uci_rows(name, split)
    model = tb.Model(tb.networks.MLP((50,)), defaults.prior(), defaults.of_numbers())
    batch_size = _BATCH if len(y) + len(y_test) > _MANY else None
    return Task(model, (x, y), (x_test, y_test), batch_size)


def _bundled(name: str, split: int) -> Task:
    """A table of scikit-learn; `growers` is its wine, named differently from the UCI table wine."""
    load = {"growers": tb.datasets.wine, "breast_cancer": tb.datasets.breast_cancer, "digits": tb.datasets.digits}
    data = load[name]()
    x, y = np.asarray(data.x), np.asarray(data.y).reshape(-1).astype(int)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=split, stratify=y)
    model = tb.Model(tb.networks.MLP((50,)), defaults.prior(), defaults.of_classes(int(y.max()) + 1))
    return Task(model, (x_train, y_train), (x_test, y_test), full=name != "digits")


def _mnist(split: int) -> Task:
    digits, letters = np.load(FOLDER / "mnist.npz"), np.load(FOLDER / "notmnist_test.npz")
    rng = np.random.default_rng(split)

    def some(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = rng.permutation(len(x))[:IMAGES]
        return x[rows].reshape(IMAGES, -1).astype(np.float32) / 255, y[rows].astype(int)

    model = tb.Model(tb.networks.MLP((100,), "relu"), defaults.prior(), defaults.of_classes(10))
    train, test = (some(digits[f"x_{part}"], digits[f"y_{part}"]) for part in ("train", "test"))
    strange, _ = some(letters["x"], letters["y"])
    return Task(model, train, test, _BATCH_OF_IMAGES, full=False, standardise=False, strange=strange)
