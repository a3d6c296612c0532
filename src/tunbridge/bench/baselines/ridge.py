"""Linear baselines: ridge regression with its predictive variance, and logistic regression."""

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np

from tunbridge.bench.baselines.base import FOLDS, Baseline, Learnt, Rows, all_classes, folds, nll, of_classes
from tunbridge.bench.baselines.processes.predictive import ProcessPredictive
from tunbridge.core.types import Key, Predictive

_PENALTIES = np.logspace(-3, 6, 28)
_INVERSE_PENALTIES = np.logspace(-4, 4, 9)


class Ridge(Baseline):
    r"""Ridge regression for numbers, logistic regression with an L2 penalty for classes, from scikit-learn.

    The penalty :math:`\lambda` of each output is chosen by leave-one-out cross-validation, for classes by five-fold
    cross-validation. With :math:`A = X^\top X + \lambda I` of centred inputs the prediction is normal,

    .. math::

        y \sim N\bigl(\bar y + x^\top \hat w, \; \sigma^2 (1 + 1/n + x^\top A^{-1} x)\bigr), \qquad
        \sigma^2 = \frac1n \sum_i \frac{e_i^2}{1 - h_i},

    where :math:`e_i` are residuals and :math:`h_i = 1/n + x_i^\top A^{-1} x_i` leverages: leave-one-out residuals then
    have the predicted variance on average.
    """

    def learn(self, rows: Rows, key: Key) -> tuple[Learnt, str]:
        """Fit ridge or logistic regression to the rows."""
        return _logistic(rows, key) if rows.classes else _ridge(rows)


@dataclasses.dataclass(frozen=True)
class Line:
    """Fitted ridge regression; `roots` R has R R' = inverse of A for each output, (outputs, features, features)."""

    middle: np.ndarray
    level: np.ndarray
    slopes: np.ndarray
    """(features, outputs)."""
    roots: np.ndarray
    noise: np.ndarray
    """Noise variance, (outputs,)."""
    count: float

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """Normal predictive at each x."""
        off = np.asarray(x, np.float64) - self.middle[None]
        mean = self.level[None] + off @ self.slopes
        spread = np.einsum("nf,ofk->nok", off, self.roots)
        epistemic = self.noise[None] * (1.0 / self.count + np.sum(spread**2, axis=2))

        def draw(key: Key, num: int) -> np.ndarray:
            key_slopes, key_level = jax.random.split(key)
            z = np.asarray(jax.random.normal(key_slopes, (num, *self.slopes.T.shape)), np.float64)
            level = np.asarray(jax.random.normal(key_level, (num, 1, len(self.noise))), np.float64)
            away = np.einsum("nok,sok->sno", spread, z) + level / np.sqrt(self.count)
            return mean[None] + np.sqrt(self.noise)[None, None] * away

        return ProcessPredictive(mean, epistemic, self.noise, draw, key)


def _ridge(rows: Rows) -> tuple[Line, str]:
    from sklearn.linear_model import RidgeCV

    ridge = RidgeCV(_PENALTIES, alpha_per_target=True).fit(rows.x, rows.y, sample_weight=rows.weight)
    middle, level = (np.average(part, axis=0, weights=rows.weight) for part in (rows.x, rows.y))
    off, slopes = rows.x - middle[None], np.reshape(ridge.coef_, (rows.y.shape[1], -1)).T
    gram, count = (off * rows.weight[:, None]).T @ off, rows.weight.sum()
    penalties = np.ravel(ridge.alpha_)
    roots = np.stack([_inverse_root(gram + penalty * np.eye(len(gram))) for penalty in penalties])
    leverage = 1.0 / count + np.sum(np.einsum("nf,ofk->nok", off, roots) ** 2, axis=2)
    residuals = rows.y - level[None] - off @ slopes
    noise = np.average(residuals**2 / (1.0 - leverage), axis=0, weights=rows.weight)
    note = f"the penalty is {', '.join(f'{penalty:.3g}' for penalty in penalties)}, by leave-one-out cross-validation."
    return Line(middle, level, slopes, roots, np.maximum(noise, 1e-12), float(count)), note


def _inverse_root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return vectors / np.sqrt(values)[None]


@dataclasses.dataclass(frozen=True)
class Logit:
    """Fitted logistic regression."""

    line: Any
    rows: int
    classes: int

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """Class probabilities at x."""
        return of_classes(self.log_probs(x), x)

    def log_probs(self, x: np.ndarray) -> np.ndarray:
        """Log probability of each class at x, (points, classes)."""
        return all_classes(self.line.predict_proba(x), self.line.classes_, self.rows, self.classes)


def _logistic(rows: Rows, key: Key) -> tuple[Logit, str]:
    fold = folds(key, rows)
    losses = np.zeros(len(_INVERSE_PENALTIES))
    for number in range(FOLDS):
        train, held = rows.take(fold != number), rows.take(fold == number)
        for place, strength in enumerate(_INVERSE_PENALTIES):
            log_probs = _line(train, strength).log_probs(held.x)
            losses[place] += nll(log_probs, held.y, held.weight) * held.weight.sum()
    chosen = _INVERSE_PENALTIES[int(np.argmin(losses))]
    return _line(rows, chosen), f"the penalty is {1 / chosen:.3g}, by cross-validation on {FOLDS} folds."


def _line(rows: Rows, strength: float) -> Logit:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():  # a penalty too weak to converge loses on the held-out rows anyway
        warnings.simplefilter("ignore", ConvergenceWarning)
        line = LogisticRegression(C=strength, max_iter=300).fit(rows.x, rows.y, sample_weight=rows.weight)
    return Logit(line, len(rows.x), rows.classes)
