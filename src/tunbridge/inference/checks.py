"""Checks of a posterior against data: posterior predictive checks, and leave-one-out estimates."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core import tables
from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key
from tunbridge.diagnostics import psis
from tunbridge.model.likelihoods.base import OfClasses, OfCounts
from tunbridge.model.likelihoods.multitask import MultiTask

BATCHES, SIZE = 10, 50
"""Number of batches of replicates, and replicates per batch; the first batch is kept."""
_BLOCK = 256
"""Points per block of leave-one-out estimates, so that (draws, points) arrays are never held whole."""
_MOST_BYTES = 2**30

Statistics = dict[str, Callable[[np.ndarray], np.ndarray]]
"""Statistics by name: functions of y (replicates, points) that return (replicates,)."""


@dataclasses.dataclass(frozen=True)
class Check(tables.Table):
    """The result of `Posterior.check`."""

    caption = "check"

    rows: list[dict[str, Any]]
    """One per statistic: observed, its mean and sd over replicates, and the share of larger replicates."""
    sentences: tuple[str, ...]
    """Remarks on the leave-one-out estimates."""
    observed: np.ndarray
    """y as the likelihood scores it, (points, outputs) or labels (points,)."""
    replicated: np.ndarray
    """50 data sets drawn from the posterior predictive, (50, points, ...)."""
    loo: psis.Loo | None
    """Leave-one-out estimates; None if there are too few networks."""
    pit: np.ndarray | None
    """P(Y <= y) of each point given all others (leave-one-out PIT), (points, outputs): uniform for the true model."""


def check(posterior: Any, data: Data, key: Key) -> Check:
    """Check a posterior against data; see `Posterior.check`."""
    y = _checked(posterior, data)
    key_replicates, key_pit = jax.random.split(key)
    rows, replicates = _replicated(posterior, data.x, y, key_replicates)
    loo, pit = _left_out(posterior, data.x, y, key_pit)
    return Check(rows, tuple(_sentences(loo, pit)), y, replicates, loo, pit)


def _checked(posterior: Any, data: Data) -> np.ndarray:
    if data.weight is not None:
        raise InputError("rows that count once", "rows with weights", "Pass tb.Data(x, y) without weights.")
    size = SIZE * data.y.size * 8
    if size > _MOST_BYTES:
        raise InputError(
            f"replicates of y of at most {_MOST_BYTES / 2**30:.0f} GiB",
            f"{size / 2**30:.1f} GiB for {data.num:,} points",
            "Check a random subset of the rows.",
        )
    return np.asarray(posterior.model.likelihood.check(data.y))


def _replicated(posterior: Any, x: Any, y: np.ndarray, key: Key) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Rows of the table of statistics, and the first batch of replicates."""
    predictive, statistics = posterior.predict(x), _statistics(posterior.model.likelihood, y)
    values: dict[str, list[np.ndarray]] = {name: [] for name in statistics}
    first, *others = jax.random.split(key, BATCHES)
    replicates = np.asarray(predictive.sample(first, SIZE))
    for drawn in itertools.chain(
        [replicates], (np.asarray(predictive.sample(key_batch, SIZE)) for key_batch in others)
    ):
        for name, statistic in statistics.items():
            values[name].append(statistic(drawn))
    rows = [
        _row(name, float(function(y[None])[0]), np.concatenate(values[name])) for name, function in statistics.items()
    ]
    return rows, replicates


def _row(name: str, observed: float, replicated: np.ndarray) -> dict[str, Any]:
    larger = np.mean(replicated > observed) + 0.5 * np.mean(replicated == observed)
    return {"statistic": name, "observed": observed, "expected": replicated.mean(), "sd": replicated.std(), "p": larger}


def _statistics(likelihood: Any, y: np.ndarray) -> Statistics:
    if isinstance(likelihood, MultiTask):
        statistics: Statistics = {}
        for number, (name, task) in enumerate(zip(likelihood.names, likelihood.tasks, strict=True)):
            of_task = _statistics(task, likelihood.blocks(y)[number])
            statistics |= {
                f"{name}: {label}": _of_task(likelihood, number, statistic) for label, statistic in of_task.items()
            }
        return statistics
    if isinstance(likelihood, OfClasses):
        num = likelihood.num_classes(jnp.asarray(y))
        return {**{f"share of class {c}": _share(c) for c in range(num)}, "entropy of the shares": _entropy(num)}
    suffixes = [""] if y.shape[1] == 1 else [f" of output {output}" for output in range(y.shape[1])]
    return {
        f"{name}{suffixes[o]}": _of(o, statistic) for o in range(y.shape[1]) for name, statistic in _MOMENTS.items()
    }


def _of_task(likelihood: Any, number: int, statistic: Callable[[np.ndarray], np.ndarray]) -> Callable:
    return lambda values: statistic(likelihood.blocks(values)[number])


def _of(output: int, statistic: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: statistic(np.asarray(values[..., output], np.float64))


def _skew(values: np.ndarray) -> np.ndarray:
    deviations = values - values.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return (deviations**3).mean(axis=1) / (deviations**2).mean(axis=1) ** 1.5


_MOMENTS: Statistics = {
    "mean": lambda values: values.mean(axis=1),
    "sd": lambda values: values.std(axis=1),
    "min": lambda values: values.min(axis=1),
    "max": lambda values: values.max(axis=1),
    "skew": _skew,
}


def _share(label: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: np.mean(values == label, axis=1)


def _entropy(num: int) -> Callable[[np.ndarray], np.ndarray]:
    def entropy(values: np.ndarray) -> np.ndarray:
        shares = np.stack([_share(label)(values) for label in range(num)], axis=1)
        return -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1)

    return entropy


def _left_out(posterior: Any, x: Any, y: np.ndarray, key: Key) -> tuple[psis.Loo | None, np.ndarray | None]:
    """Leave-one-out estimates and PIT values, block by block; None if there are too few networks."""
    parts, pits = [], []
    for start in range(0, len(y), _BLOCK):
        rows = slice(start, start + _BLOCK)
        predictive = posterior.predict(x[rows])
        log_likelihood = np.asarray(predictive.log_probs(y[rows]))
        if len(log_likelihood) < psis.LEAST:
            return None, None
        loo, log_weights = psis.loo(log_likelihood)
        uniform = jax.random.uniform(jax.random.fold_in(key, start), y[rows].shape)
        drawn = np.asarray(uniform, np.float64).reshape(len(uniform), -1)
        pits.append(_pit(posterior.model.likelihood, predictive, y[rows], np.exp(log_weights), drawn))
        parts.append(loo)
    fields = (field.name for field in dataclasses.fields(psis.Loo))
    joined = psis.Loo(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))
    return joined, np.clip(np.concatenate(pits), 0.0, 1.0)


def _pit(likelihood: Any, predictive: Any, y: np.ndarray, weights: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """PIT values P(Y <= y), (points, columns), under weights (networks, points).

    For counts and classes a value between P(Y < y) and P(Y <= y), as far down as `drawn` in [0, 1) says.
    """
    if isinstance(likelihood, MultiTask):
        pairs = zip(likelihood.tasks, predictive.tasks.values(), likelihood.blocks(y), strict=True)
        ends = np.cumsum(likelihood.columns)
        return np.concatenate(
            [
                _pit(task, task_predictive, block, weights, drawn[:, end - width : end])
                for (task, task_predictive, block), end, width in zip(pairs, ends, likelihood.columns, strict=True)
            ],
            axis=1,
        )
    if isinstance(likelihood, OfClasses):
        probs = np.einsum("sp,spc->pc", weights, np.asarray(predictive.functions, np.float64))
        labels = y.astype(int)
        upper = np.cumsum(probs, axis=1)[np.arange(len(labels)), labels]
        return (upper - probs[np.arange(len(labels)), labels] * drawn[:, 0])[:, None]
    upper = _weighed(weights, predictive.cdfs(y))
    if not isinstance(likelihood, OfCounts):
        return upper
    return upper - (upper - _weighed(weights, predictive.cdfs(y - 1))) * drawn


def _weighed(weights: np.ndarray, values: Any) -> np.ndarray:
    return np.einsum("sp,spo->po", weights, np.asarray(values, np.float64))


def _sentences(loo: psis.Loo | None, pit: np.ndarray | None) -> list[str]:
    if loo is None or pit is None:
        return [f"Leave-one-out estimates need at least {psis.LEAST} networks, and this posterior has fewer."]
    from scipy import stats

    sentences = [
        f"The leave-one-out log density is {loo.elpd:,.1f} (standard error {loo.se:.1f}) in all, "
        f"{loo.elpd / len(loo.elpd_i):.3f} per point; the effective number of parameters is {loo.p_i.sum():.1f}.",
        f"k-hat is above {psis.HIGH} at {loo.high:.1%} of the points, {loo.khat.max():.2f} at most.",
    ]
    if loo.high > 0:
        sentences[-1] += (
            " There estimates are unreliable: refit without these points, or use a heavier-tailed likelihood."
        )
    levels = ", ".join(f"{stats.kstest(column, 'uniform').pvalue:.2g}" for column in pit.T)
    return [*sentences, f"Kolmogorov-Smirnov test of a uniform leave-one-out P(Y <= y): p = {levels}."]
