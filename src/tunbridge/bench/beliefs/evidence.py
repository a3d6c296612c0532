"""Models by their evidence, beside how well they predict."""

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from tunbridge.bench.comparing.compare import as_rows, as_scored
from tunbridge.core import tables
from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key
from tunbridge.inference.base import Method
from tunbridge.inference.laplace.gaussian import Linearised
from tunbridge.inference.laplace.laplace import Laplace
from tunbridge.inference.linear.neurallinear import NeuralLinear
from tunbridge.inference.linear.posterior import LinearLayer
from tunbridge.inference.mcmc.smc import TemperedSMC
from tunbridge.inference.posteriors import Draws
from tunbridge.inference.standardised import Standardised, fit_standardised
from tunbridge.model.model import Model

Rows = Data | tuple[Any, Any]
_FEWEST = 3
"""Models, for a rank correlation to be told."""


@dataclasses.dataclass(frozen=True)
class ModelRanking(tables.Table):
    """What `rank_models` found: rows of figures, the largest evidence first, and each model's posterior."""

    caption = "models by evidence"

    rows: list[dict[str, Any]]
    sentences: tuple[str, ...]
    posteriors: dict[str, Standardised]
    rank_correlation: float | None
    """Spearman's, of evidence and test log score; None without test rows, or with fewer than three models."""

    @property
    def best(self) -> str:
        """The model of the largest evidence."""
        return self.rows[0]["model"]


def rank_models(
    models: Mapping[str, Model],
    data: Rows,
    test: Rows | None = None,
    *,
    method: Method | None = None,
    starts: int = 1,
    key: Key,
) -> ModelRanking:
    r"""Order models by the evidence of the same rows, with the probability of each :cite:p:`mackay1992practical`.

    .. math::

        p(M \mid y) = \frac{p(y \mid M)}{\sum_{M'} p(y \mid M')}

    where all are equally probable before. Rows are standardised as `compare` does; the evidence is then taken back to
    the units of y, so that its negative for each row stands beside the test NLL. What `Laplace` tunes is at its best
    value, not integrated out.

    Parameters
    ----------
    models
        By name.
    data, test
        Rows to learn from, and rows to be judged on: `Data`, or pairs (x, y) of arrays.
    method
        One that finds the evidence: `Laplace`, which is meant by None, or `TemperedSMC`.
    starts
        How often each model is fitted, each time from another start; the fit of the largest evidence is kept.
    key
        The same for every model.
    """
    method = Laplace() if method is None else method
    _refuse(models, method, starts)
    found = {name: learn(model, data, method, key=key, starts=starts) for name, model in models.items()}
    total = np.array([one.log_evidence - one.unit for one in found.values()])
    shares = np.exp(total - total.max()) / np.exp(total - total.max()).sum()
    rows = []
    for (name, one), value, share in zip(found.items(), total.tolist(), shares.tolist(), strict=True):
        figures = {"log evidence": value, "a row": value / one.num, "probability": share}
        scores = {} if test is None else score(one.posterior, models[name], data, test)
        rows.append({"model": name, "weights": one.weights, **figures, **scores, "seconds": one.seconds})
    rows.sort(key=lambda row: -row["log evidence"])
    correlation = _rank_correlation(rows)
    posteriors = {name: one.posterior for name, one in found.items()}
    return ModelRanking(rows, _sentences(list(found.values()), correlation), posteriors, correlation)


class Learnt(NamedTuple):
    """A posterior of standardised rows, with its evidence."""

    posterior: Standardised
    log_evidence: float
    """Of the standardised rows."""
    unit: float
    """The logarithm of the unit of y, summed over rows: the evidence in the units of y is smaller by it."""
    num: float
    """Rows, each counted as often as its weight says."""
    weights: int
    seconds: float


def learn(model: Model, train: Rows, method: Method, *, key: Key, starts: int = 1) -> Learnt:
    """Fit a model from so many starts, and keep the posterior of the largest evidence."""
    x, y, weight = as_rows(train)
    keys = [key, *(jax.random.fold_in(key, number) for number in range(1, starts))]
    began = time.perf_counter()
    fits = [fit_standardised(method, model, x, y, weight, key=one, progress=False) for one in keys]
    evidences = [_evidence(fit) for fit in fits]
    seconds = time.perf_counter() - began
    best = int(np.nanargmax(evidences))
    posterior = fits[best]
    num = len(x) if weight is None else float(np.sum(weight))
    scale = posterior.scaling.y_scale
    unit = 0.0 if scale is None else num * float(np.log(scale).sum())
    bound = posterior.model
    shapes = jax.eval_shape(bound.network.init, key, bound.example())
    weights = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    return Learnt(posterior, evidences[best], unit, num, weights, seconds)


def score(posterior: Standardised, model: Model, train: Rows, test: Rows) -> dict[str, float]:
    """The NLL of test rows, and its standard error."""
    scores = -np.asarray(posterior.predict(as_rows(test)[0]).log_prob(as_scored(model, train, test)))
    return {"NLL": float(scores.mean()), "its error": float(scores.std(ddof=1) / np.sqrt(len(scores)))}


def _evidence(fit: Standardised) -> float:
    posterior = fit.posterior
    if not isinstance(posterior, Draws | Linearised | LinearLayer) or posterior.log_evidence is None:
        raise InputError("a posterior with its evidence", type(posterior).__name__, "Use tb.Laplace().")
    return float(posterior.log_evidence)


def _refuse(models: Mapping[str, Model], method: Method, starts: int) -> None:
    if not isinstance(models, Mapping) or not models or not all(isinstance(one, Model) for one in models.values()):
        raise InputError("a mapping of names to models", repr(models)[:60], 'Write {"small": tb.Model(...), ...}.')
    if not isinstance(method, Laplace | NeuralLinear | TemperedSMC):
        name = type(method).__name__
        raise InputError("a method that finds the evidence", name, "Use tb.Laplace() or tb.TemperedSMC().")
    if starts < 1:
        raise InputError("at least 1 start", f"{starts}", "Try 3.")


def _rank_correlation(rows: list[dict[str, Any]]) -> float | None:
    if len(rows) < _FEWEST or "NLL" not in rows[0]:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr([row["log evidence"] for row in rows], [-row["NLL"] for row in rows]).statistic)


def _sentences(found: list[Learnt], correlation: float | None) -> tuple[str, ...]:
    said = []
    if units := {round(one.unit, 2) for one in found} - {0.0}:
        less = " or ".join(f"{unit:,.2f}" for unit in sorted(units))
        said.append(f"Log evidence of y in its own units: that of standardised y less n log sd(y) = {less}.")
    if correlation is not None:
        said.append(f"Rank correlation of evidence and test log score: {correlation:.2f} over {len(found)} models.")
    return tuple(said)
