"""Gaussian process baseline: exact for regression, Laplace's approximation for classification."""

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
"""The largest number of rows used to fit the kernel."""


class Process(Baseline):
    """A Gaussian process with a squared exponential kernel, for at most 2,000 rows :cite:p:`rasmussen2006gaussian`.

    Regression is exact, with one process per output and one length scale per input; kernel and noise maximise the
    evidence of at most 1,000 of the rows, and the process is then conditioned on all rows. Classification uses
    Laplace's approximation from scikit-learn, one class against the rest with a single length scale; rows times
    one-against-rest problems are at most 1,000.
    """

    def learn(self, rows: Rows, key: Key) -> tuple[Learnt, str]:
        """Fit a process to the rows."""
        if len(rows.x) > _MOST:
            raise InputError(f"at most {_MOST:,} rows for a Gaussian process", f"{len(rows.x):,}", "Leave it out.")
        if not (rows.weight == 1.0).all():
            raise InputError("rows without weights for a Gaussian process", "weighted rows", "Leave it out.")
        return _classified(rows, key) if rows.classes else _regressed(rows, key)


@dataclasses.dataclass(frozen=True)
class Processes:
    """One process per output, each fitted to y minus `level`, divided by `unit`."""

    each: tuple[FittedProcess, ...]
    level: np.ndarray
    unit: np.ndarray

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """Normal predictive at each x, in the units of y."""
        predictives = [process.predict(x) for process in self.each]
        mean, epistemic, noise = (
            np.concatenate([getattr(predictive, name) for predictive in predictives], axis=1)
            for name in ("mean", "epistemic", "aleatoric")
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
    subset = np.asarray(jax.random.permutation(key, len(rows.x)))[:_TUNED_BY]
    spread = np.where((sd := rows.x.std(axis=0)) > 0, sd, 1.0)
    kernel = 1.0 * tinygp.transforms.Linear(1.0 / (spread * np.sqrt(len(spread))), kernels.ExpSquared(1.0))
    processes = []
    for output in range(rows.y.shape[1]):
        y = (rows.y[:, output] - level[output]) / unit[output]
        fitted = ExactProcess(kernel, 0.3, restarts=0).fit(rows.x[subset], y[subset], key=key)
        if len(subset) < len(rows.x):
            fitted = ExactProcess(fitted.kernel, fitted.noise, tune=False).fit(rows.x, y, key=key)
        processes.append(fitted)
    return Processes(tuple(processes), level, unit), "its kernel and noise maximise the evidence."


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A fitted process classifier, one class against the rest."""

    process: Any
    rows: int
    classes: int

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """Class probabilities at x."""
        probs = self.process.predict_proba(np.asarray(x, np.float64))
        return of_classes(all_classes(probs, self.process.classes_, self.rows, self.classes), x)


def _classified(rows: Rows, key: Key) -> tuple[Classifier, str]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    problems = 1 if rows.classes == 2 else rows.classes
    if len(rows.x) * problems > _MOST_CLASSIFIED:
        raise InputError(
            f"at most {_MOST_CLASSIFIED:,} rows times one-against-rest problems for Gaussian processes",
            f"{len(rows.x) * problems:,}",
            "Leave it out.",
        )
    kernel = ConstantKernel(1.0, (1e-2, 1e4)) * RBF(np.sqrt(rows.x.shape[1]), (1e-2, 1e4))
    with warnings.catch_warnings():  # a length scale at the end of its range is acceptable
        warnings.simplefilter("ignore", ConvergenceWarning)
        process = GaussianProcessClassifier(kernel, random_state=seed(key)).fit(rows.x, rows.y)
    return Classifier(process, len(rows.x), rows.classes), "its kernel maximises the approximate evidence."
