"""Gradient boosting with noise, or a temperature, estimated by cross-validation."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
from scipy.special import log_softmax

from tunbridge.bench.baselines.base import (
    FOLDS,
    Baseline,
    Learnt,
    Rows,
    all_classes,
    around,
    best_temperature,
    folds,
    nll,
    of_classes,
    seed,
)
from tunbridge.core.types import Key, Predictive


class Boosting(Baseline):
    """Histogram gradient boosting from scikit-learn with its default settings :cite:p:`friedman2001greedy`.

    Five-fold cross-validation chooses the number of trees. The noise of each output is the root mean square of the
    held-out residuals; for classes, the held-out predictions choose a temperature.

    Parameters
    ----------
    trees
        The largest number of trees.
    """

    trees: int = eqx.field(default=100, static=True)

    def learn(self, rows: Rows, key: Key) -> tuple[Learnt, str]:
        """Choose the number of trees by cross-validation, and fit that many to all rows."""
        key_folds, key_trees = jax.random.split(key)
        learn = self._classes if rows.classes else self._numbers
        return learn(rows, folds(key_folds, rows), seed(key_trees))

    def _numbers(self, rows: Rows, fold: np.ndarray, state: int) -> tuple[Learnt, str]:
        from sklearn.ensemble import HistGradientBoostingRegressor

        settings = {"early_stopping": False, "random_state": state}
        fitted, noise = [], []
        for y in rows.y.T:
            held = np.empty((self.trees, len(y)))
            for number in range(FOLDS):
                out = fold == number
                trees = HistGradientBoostingRegressor(max_iter=self.trees, **settings)
                trees.fit(rows.x[~out], y[~out], _weight(rows.weight[~out]))
                held[:, out] = list(trees.staged_predict(rows.x[out]))
            losses = np.average((held - y[None]) ** 2, axis=1, weights=rows.weight)
            best = int(np.argmin(losses))
            trees = HistGradientBoostingRegressor(max_iter=best + 1, **settings)
            fitted.append(trees.fit(rows.x, y, _weight(rows.weight)))
            noise.append(max(losses[best], 1e-12))
        counts = ", ".join(str(trees.n_iter_) for trees in fitted)
        return Trees(tuple(fitted), np.array(noise)), f"it has {counts} trees, by cross-validation on {FOLDS} folds."

    def _classes(self, rows: Rows, fold: np.ndarray, state: int) -> tuple[Learnt, str]:
        from sklearn.ensemble import HistGradientBoostingClassifier

        settings = {"early_stopping": False, "random_state": state}
        held = np.empty((self.trees, len(rows.y), rows.classes))
        for number in range(FOLDS):
            out = fold == number
            trees = HistGradientBoostingClassifier(max_iter=self.trees, **settings)
            trees.fit(rows.x[~out], rows.y[~out], _weight(rows.weight[~out]))
            staged = np.array(list(trees.staged_predict_proba(rows.x[out])))
            held[:, out] = all_classes(staged, trees.classes_, int(np.sum(~out)), rows.classes)
        best = int(np.argmin([nll(log_probs, rows.y, rows.weight) for log_probs in held]))
        temperature = best_temperature(held[best], rows.y, rows.weight)
        trees = HistGradientBoostingClassifier(max_iter=best + 1, **settings)
        trees.fit(rows.x, rows.y, _weight(rows.weight))
        note = (
            f"it has {best + 1} trees per class and a temperature of {temperature:.2f}, "
            f"by cross-validation on {FOLDS} folds."
        )
        return ClassTrees(trees, temperature, len(rows.x), rows.classes), note


def _weight(weight: np.ndarray) -> np.ndarray | None:
    """None if all weights are 1: scikit-learn is eight times slower with weights."""
    return None if (weight == 1.0).all() else weight


@dataclasses.dataclass(frozen=True)
class Trees:
    """Trees for each output, and the variance of the noise around them."""

    each: tuple[Any, ...]
    noise: np.ndarray

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """Normal distribution around the trees' prediction at x."""
        return around(np.column_stack([trees.predict(x) for trees in self.each]), self.noise, key)


@dataclasses.dataclass(frozen=True)
class ClassTrees:
    """A boosted classifier, and its temperature."""

    trees: Any
    temperature: float
    rows: int
    classes: int

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """Class probabilities at x."""
        log_probs = all_classes(self.trees.predict_proba(x), self.trees.classes_, self.rows, self.classes)
        return of_classes(log_softmax(log_probs / self.temperature, axis=1), x)
