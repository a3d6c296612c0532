"""Gradient boosting with noise, or a temperature, measured on rows held out."""

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
    """Histogram gradient boosting by scikit-learn, in its default settings :cite:p:`friedman2001greedy`.

    Five folds give predictions for rows held out. They choose the number of trees, and the noise of each output is the
    root mean square of their residuals; for classes they choose a temperature.

    Parameters
    ----------
    trees
        The most.
    """

    trees: int = eqx.field(default=100, static=True)

    def learn(self, rows: Rows, key: Key) -> tuple[Learnt, str]:
        """The trees of all rows."""
        key_folds, key_trees = jax.random.split(key)
        learn = self._classes if rows.classes else self._numbers
        return learn(rows, folds(key_folds, rows), seed(key_trees))

    def _numbers(self, rows: Rows, fold: np.ndarray, state: int) -> tuple[Learnt, str]:
        from sklearn.ensemble import HistGradientBoostingRegressor

        settings = {"early_stopping": False, "random_state": state}
        found, noise = [], []
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
            found.append(trees.fit(rows.x, y, _weight(rows.weight)))
            noise.append(max(losses[best], 1e-12))
        counts = ", ".join(str(trees.n_iter_) for trees in found)
        return Trees(tuple(found), np.array(noise)), f"it has {counts} trees, by {FOLDS} folds."

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
        said = f"it has {best + 1} trees per class and a temperature of {temperature:.2f}, by {FOLDS} folds."
        return ClassTrees(trees, temperature, len(rows.x), rows.classes), said


def _weight(weight: np.ndarray) -> np.ndarray | None:
    """None where all count once: scikit-learn takes eight times as long with weights."""
    return None if (weight == 1.0).all() else weight


@dataclasses.dataclass(frozen=True)
class Trees:
    """Trees for each output, and the variance of the noise around them."""

    each: tuple[Any, ...]
    noise: np.ndarray

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """Normal around the trees."""
        return around(np.column_stack([trees.predict(x) for trees in self.each]), self.noise, key)


@dataclasses.dataclass(frozen=True)
class ClassTrees:
    """Trees for classes, and a temperature."""

    trees: Any
    temperature: float
    rows: int
    classes: int

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """The probabilities of the classes."""
        log_probs = all_classes(self.trees.predict_proba(x), self.trees.classes_, self.rows, self.classes)
        return of_classes(log_softmax(log_probs / self.temperature, axis=1), x)
