"""Which rows of a pool to label next: the protocol, and scores of single rows."""

import abc
from typing import Any, NamedTuple

import jax
import numpy as np

from tunbridge.core.data import check_x
from tunbridge.core.declared import Count, Module, as_floats, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key
from tunbridge.inference.posteriors import Posterior
from tunbridge.metrics.targets import probs


class Pool(NamedTuple):
    """What a rule selects from."""

    rows: np.ndarray
    """Rows without a label, (points, ...features)."""
    costs: np.ndarray
    """What it costs to label each, (points,)."""
    known: np.ndarray | None
    """Rows that have labels, (others, ...features)."""


class Acquisition(Module):
    """A rule that selects rows of a pool to be labelled."""

    @abc.abstractmethod
    def _selected(self, posterior: Posterior, pool: Pool, num: int, key: Key) -> np.ndarray:
        """Return `num` indices of the pool's rows, best first."""

    @checked
    def select(
        self, posterior: Posterior, x: Any, num: Count = 1, *, key: Key, costs: Any = None, known: Any = None
    ) -> np.ndarray:
        """Return indices of the rows to label, best first, (num,).

        Parameters
        ----------
        posterior
            What is known so far.
        x
            The rows of the pool that have no label, (points, ...features).
        num
            How many to select, at most as many as there are.
        key
            For rules that draw at random, and for ties.
        costs
            What it costs to label each row, (points,), above 0; None is the same for all. A rule with scores divides
            them by the costs.
        known
            The rows that have labels, for rules that keep away from them, (others, ...features).
        """
        rows = check_x(x)
        if num > len(rows):
            raise InputError(f"num from 1 to the {len(rows)} rows of the pool", f"{num}", "Ask for fewer.")
        prices = as_costs(costs, len(rows))
        others = None if known is None else check_x(known)
        if others is not None and others.shape[1:] != rows.shape[1:]:
            raise InputError(
                f"known rows of shape {rows.shape[1:]}", f"{others.shape[1:]}", "Give rows like those of x."
            )
        return self._selected(posterior, Pool(rows, prices, others), num, key)


class Scored(Acquisition):
    """A rule that scores each row by itself, and takes the highest scores."""

    @abc.abstractmethod
    def scores(self, predictive: Any) -> np.ndarray:
        """Return the score of each row, (points,)."""

    def _selected(self, posterior: Posterior, pool: Pool, num: int, key: Key) -> np.ndarray:
        return highest(self.scores(posterior.predict(pool.rows)) / pool.costs, num, key)


class Random(Acquisition):
    """Rows at random: the baseline. With costs, cheap rows are as probable as dear ones."""

    def _selected(self, posterior: Posterior, pool: Pool, num: int, key: Key) -> np.ndarray:
        return np.asarray(jax.random.permutation(key, len(pool.rows)))[:num]


class Entropy(Scored):
    """The most uncertain rows: largest entropy of the class, or largest variance of y."""

    def scores(self, predictive: Any) -> np.ndarray:
        """Return `predictive.total`, summed over outputs."""
        return per_row(predictive.total)


class VariationRatios(Scored):
    r"""The rows whose most probable class is least probable, :math:`1 - \max_c p_c`; of classes only."""

    def scores(self, predictive: Any) -> np.ndarray:
        """Return one minus the largest probability."""
        of_classes = probs(predictive)
        if of_classes is None:
            raise InputError("a posterior of classes", "one of numbers", "Use Entropy or BALD.")
        return 1.0 - of_classes.max(axis=1)


class BALD(Scored):
    r"""The rows whose label says most about the network :cite:p:`houlsby2011bayesian`.

    For classes the mutual information of label and network, :math:`H[y] - E_w H[y \mid w]`. For numbers that of normal
    distributions, :math:`\tfrac12 \log(1 + \text{epistemic} / \text{aleatoric})` summed over outputs, which is exact
    for a linear model with normal noise.
    """

    def scores(self, predictive: Any) -> np.ndarray:
        """Return the mutual information of each row's label and the network, in nats."""
        if probs(predictive) is not None:
            return per_row(predictive.epistemic)
        epistemic, aleatoric = (np.asarray(part, np.float64) for part in (predictive.epistemic, predictive.aleatoric))
        return per_row(0.5 * np.log1p(epistemic / aleatoric))


def as_costs(costs: Any, num: int) -> np.ndarray:
    """Costs (num,), ones where there are none; InputError unless all are above 0."""
    prices = np.ones(num) if costs is None else as_floats(costs, "costs")
    if prices.shape != (num,) or not (np.isfinite(prices) & (prices > 0)).all():
        raise InputError(f"costs above 0 of shape ({num},)", shown(costs), "Give one per row.")
    return prices


def per_row(values: Any) -> np.ndarray:
    """Values (points, ...) summed to one per row, (points,)."""
    array = np.asarray(values, np.float64)
    return array.reshape(len(array), -1).sum(axis=1)


def highest(scores: np.ndarray, num: int, key: Key) -> np.ndarray:
    """Indices of the highest scores, highest first; ties in an order of the key."""
    order = np.asarray(jax.random.permutation(key, len(scores)))
    return order[np.argsort(-scores[order], kind="stable")][:num]
