"""Rules that select a batch jointly, so that its rows do not say the same: BatchBALD and core sets."""

from typing import Any

import equinox as eqx
import numpy as np

from tunbridge.applications.acquisition.base import BALD, Acquisition, Pool
from tunbridge.core.declared import Count
from tunbridge.core.errors import InputError
from tunbridge.core.keys import seed
from tunbridge.core.types import Key
from tunbridge.inference.posteriors import Posterior
from tunbridge.metrics.targets import probs

_BLOCK_NUMBERS = 2**24


class BatchBALD(Acquisition):
    r"""The batch whose labels together say most about the network, chosen greedily :cite:p:`kirsch2019batchbald`.

    For classes :math:`I(y_1, \dots, y_B; w)`, with all combinations of the labels of the rows chosen so far while there
    are at most `configurations` of them, then with as many drawn ones. For numbers with normal noise the mutual
    information of normal distributions with the covariance of the posterior's functions, of one output.

    Parameters
    ----------
    configurations
        The most combinations of labels.
    candidates
        Only so many rows with the largest `BALD` are considered; None is all.
    """

    configurations: Count = eqx.field(static=True, default=10_000)
    candidates: Count | None = eqx.field(static=True, default=None)

    def _selected(self, posterior: Posterior, pool: Pool, num: int, key: Key) -> np.ndarray:
        predictive: Any = posterior.predict(pool.rows)
        some, costs = np.arange(len(pool.rows)), pool.costs
        if self.candidates is not None and self.candidates < len(some):
            single = BALD().scores(predictive) / costs
            some = np.sort(np.argsort(-single, kind="stable")[: max(self.candidates, num)])
        if probs(predictive) is None:
            functions = np.asarray(predictive.functions)[:, some].astype(np.float64)
            noise = np.asarray(predictive.aleatoric, np.float64)[some]
            return some[_of_numbers(functions, noise, costs[some], num)]
        each = np.asarray(predictive.functions)[:, some].astype(np.float64)
        return some[_of_classes(each, costs[some], num, self.configurations, np.random.default_rng(seed(key)))]


class CoreSet(Acquisition):
    """Rows that leave no other row far from one with a label: greedy k-centre :cite:p:`sener2018active`.

    Distances are between inputs; the posterior is not asked. Without `known` rows the first is the farthest from the
    mean. Costs divide squared distances.
    """

    def _selected(self, posterior: Posterior, pool: Pool, num: int, key: Key) -> np.ndarray:
        flat = np.asarray(pool.rows, np.float64).reshape(len(pool.rows), -1)
        centres = flat.mean(axis=0)[None] if pool.known is None else np.asarray(pool.known, np.float64)
        nearest = np.full(len(flat), np.inf)
        for centre in centres.reshape(len(centres), -1):
            nearest = np.minimum(nearest, np.sum((flat - centre) ** 2, axis=1))
        taken: list[int] = []
        for _ in range(num):
            worth = nearest / pool.costs
            worth[taken] = -np.inf
            taken.append(int(worth.argmax()))
            nearest = np.minimum(nearest, np.sum((flat - flat[taken[-1]]) ** 2, axis=1))
        return np.array(taken)


def _of_numbers(functions: np.ndarray, noise: np.ndarray, costs: np.ndarray, num: int) -> np.ndarray:
    r"""Greedy rows by :math:`\tfrac12 \log \det (I + \Sigma^{-1} K)`: each step conditions K on the row chosen."""
    if functions.shape[-1] != 1:
        raise InputError("a posterior of one output, or of classes", f"{functions.shape[-1]} outputs", "Use BALD.")
    left = (functions - functions.mean(axis=0))[..., 0] / np.sqrt(len(functions))
    taken: list[int] = []
    for _ in range(num):
        variance = np.sum(left**2, axis=0)
        gain = 0.5 * np.log1p(variance / noise[:, 0]) / costs
        gain[taken] = -np.inf
        taken.append(best := int(gain.argmax()))
        row = left[:, best]
        total = row @ row + noise[best, 0]
        # the root of the covariance after an observation at the row: Potter's square-root update
        share = 1.0 / (total + np.sqrt(total * noise[best, 0]))
        left = left - share * np.outer(row, row @ left)
    return np.array(taken)


def _of_classes(each: np.ndarray, costs: np.ndarray, num: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """Greedy rows by joint mutual information, from class probabilities (networks, rows, classes)."""
    networks, _, classes = each.shape
    conditional = -np.sum(each * np.log(np.maximum(each, 1e-300)), axis=2).mean(axis=0)
    joint, weights, before = np.ones((1, networks)), np.ones(1), 0.0
    taken: list[int] = []
    for _ in range(num):
        together = _joint_entropies(joint, weights, each) - conditional - conditional[taken].sum()
        gain = (together - before) / costs
        gain[taken] = -np.inf
        taken.append(best := int(gain.argmax()))
        before = together[best]
        if len(taken) < num:
            if len(joint) * classes <= most and np.all(weights == 1.0):
                joint = (joint[:, None] * each[:, best].T[None]).reshape(-1, networks)
                weights = np.ones(len(joint))
            else:
                joint, weights = _drawn(each[:, taken], most, rng)
    return np.array(taken)


def _joint_entropies(joint: np.ndarray, weights: np.ndarray, each: np.ndarray) -> np.ndarray:
    r"""Entropies of the labels chosen so far together with that of each row, (rows,).

    `joint` are probabilities of label combinations under each network, (combinations, networks). Drawn combinations
    have `weights` 1 / (M p), so that sums over all combinations become averages.
    """
    networks, rows, classes = each.shape
    size = max(1, _BLOCK_NUMBERS // (len(joint) * classes))
    parts = []
    for start in range(0, rows, size):
        block = each[:, start : start + size].reshape(networks, -1)
        together = joint @ block / networks
        terms = -weights[:, None] * together * np.log(np.maximum(together, 1e-300))
        parts.append(terms.sum(axis=0).reshape(-1, classes).sum(axis=1))
    return np.concatenate(parts)


def _drawn(chosen: np.ndarray, num: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """`num` combinations of labels of the chosen rows, drawn from the posterior: probabilities, and weights."""
    networks, rows, _ = chosen.shape
    which = rng.integers(networks, size=num)
    joint = np.ones((num, networks))
    for row in range(rows):
        edges = np.cumsum(chosen[which, row], axis=1)
        labels = np.minimum((rng.random(num)[:, None] > edges).sum(axis=1), chosen.shape[2] - 1)
        joint *= chosen[:, row, labels].T
    return joint, 1.0 / (num * joint.mean(axis=1))
