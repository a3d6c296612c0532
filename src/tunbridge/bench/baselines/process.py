"""Gaussian processes: exact for numbers, by Laplace's approximation for classes."""

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np
import tinygp
from tinygp import kernels

from tunbridge.bench.baselines.base import Baseline, Learnt, Rows, all_classes, of_classes, seed
from tunbridge.bench.baselines.processes.predictive import ProcessPredictive
from tunbridge.bench.baselines.processes.regression import ExactProcess, FittedProcess
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Predictive

_MOST = 2000
_MOST_CLASSIFIED = 1000
_TUNED_BY = 1000
"""How many rows the kernel is learnt from."""


class Process(Baseline):
    """A Gaussian process with a squared exponential kernel, for at most 2,000 rows :cite:p:`rasmussen2006gaussian`.

    Numbers: exact, a process an output with a length for each input; kernel and noise maximise the evidence of at most
    1,000 of the rows, and all rows are conditioned on. Classes: Laplace's approximation by scikit-learn, one class
    against the rest with one length, where rows times the classes told apart so are at most 1,000.
    """

    def learn(self, rows: Rows, key: Key) -> tuple[Learnt, str]:
        """The process given the rows."""
        if len(rows.x) > _MOST:
            raise InputError(f"at most {_MOST:,} rows for a Gaussian process", f"{len(rows.x):,}", "Leave it out.")
        if not (rows.weight == 1.0).all():
            raise InputError("rows that count once for a Gaussian process", "weights", "Leave it out.")
        return _classified(rows, key) if rows.classes else _regressed(rows, key)


@dataclasses.dataclass(frozen=True)
class Processes:
    """A process an output, around a level, in units in which it varies by about one."""

    each: tuple[FittedProcess, ...]
    level: np.ndarray
    unit: np.ndarray

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """Normal at each x."""
        found = [process.predict(x) for process in self.each]
        mean, epistemic, noise = (
            np.concatenate([getattr(one, name) for one in found], axis=1) for name in ("mean", "epistemic", "aleatoric")
        )

        def draw(key: Key, num: int) -> np.ndarray:
            keys = jax.random.split(key, len(self.each))
            drawn = [process.draw(x, each, num) for process, each in zip(self.each, keys, strict=True)]
            return self.level[None, None] + self.unit[None, None] * np.concatenate(drawn, axis=2)

        mean, epistemic = self.level[None] + self.unit[None] * mean, self.unit[None] ** 2 * epistemic
        return ProcessPredictive(mean, epistemic, self.unit**2 * noise[0], draw, key)


def _regressed(rows: Rows, key: Key) -> tuple[Processes, str]:
    level, unit = rows.y.mean(axis=0), rows.y.std(axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    some = np.asarray(jax.random.permutation(key, len(rows.x)))[:_TUNED_BY]
    spread = np.where((sd := rows.x.std(axis=0)) > 0, sd, 1.0)
    kernel = 1.0 * tinygp.transforms.Linear(1.0 / (spread * np.sqrt(len(spread))), kernels.ExpSquared(1.0))
    found = []
    for output in range(rows.y.shape[1]):
        y = (rows.y[:, output] - level[output]) / unit[output]
        fitted = ExactProcess(kernel, 0.3, restarts=0).fit(rows.x[some], y[some], key=key)
        if len(some) < len(rows.x):
            fitted = ExactProcess(fitted.kernel, fitted.noise, tune=False).fit(rows.x, y, key=key)
        found.append(fitted)
    return Processes(tuple(found), level, unit), "its kernel and noise are those of the largest evidence."


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A process for each class against the rest."""

    process: Any
    rows: int
    classes: int

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """The probabilities of its classes."""
        probs = self.process.predict_proba(np.asarray(x, np.float64))
        return of_classes(all_classes(probs, self.process.classes_, self.rows, self.classes), x)


def _classified(rows: Rows, key: Key) -> tuple[Classifier, str]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    problems = 1 if rows.classes == 2 else rows.classes
    if len(rows.x) * problems > _MOST_CLASSIFIED:
        raise InputError(
            f"at most {_MOST_CLASSIFIED:,} rows, times the classes told apart, for Gaussian processes",
            f"{len(rows.x) * problems:,}",
            "Leave it out.",
        )
    kernel = ConstantKernel(1.0, (1e-2, 1e4)) * RBF(np.sqrt(rows.x.shape[1]), (1e-2, 1e4))
    with warnings.catch_warnings():  # a length at the end of its range is an answer
        warnings.simplefilter("ignore", ConvergenceWarning)
        process = GaussianProcessClassifier(kernel, random_state=seed(key)).fit(rows.x, rows.y)
    return Classifier(process, len(rows.x), rows.classes), "its kernel is that of the largest approximate evidence."
