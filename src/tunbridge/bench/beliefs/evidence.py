"""Rank models by their evidence, and compare with how well they predict."""

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
from tunbridge.core.declared import Count, checked
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
"""Fewest models for a rank correlation."""


@dataclasses.dataclass(frozen=True)
class ModelRanking(tables.Table):
    """The result of `rank_models`: a row per model, largest evidence first, and each model's posterior."""

    caption = "models by evidence"

    rows: list[dict[str, Any]]
    sentences: tuple[str, ...]
    posteriors: dict[str, Standardised]
    rank_correlation: float | None
    """Spearman correlation of evidence and test log score; None without test rows, or with fewer than three models."""

    @property
    def best(self) -> str:
        """The model with the largest evidence."""
        return self.rows[0]["model"]


@checked
def rank_models(
    models: Mapping[str, Model],
    data: Rows,
    test: Rows | None = None,
    *,
    method: Method | None = None,
    starts: Count = 1,
    key: Key,
) -> ModelRanking:
    r"""Rank models by their evidence on the same rows, with the probability of each :cite:p:`mackay1992practical`.

    .. math::

        p(M \mid y) = \frac{p(y \mid M)}{\sum_{M'} p(y \mid M')}

    with equal prior probabilities. Rows are standardised as in `compare`; the evidence is then converted to the units
    of y, so that its negative per row is comparable with the test NLL. Hyperparameters that `Laplace` tunes are at
    their best values, not integrated out.

    Parameters
    ----------
    models
        Models by name.
    data, test
        Training rows and test rows: `Data`, or pairs (x, y) of arrays.
    method
        A method that estimates the evidence, such as `Laplace` or `TemperedSMC`; None is ``Laplace()``.
    starts
        How many times each model is fitted, from different starting points; the fit with the largest evidence is kept.
    key
        The key, the same for every model.
    """
    method = Laplace() if method is None else method
    refuse(models, method)
    fits = {name: learn(model, data, method, key=key, starts=starts) for name, model in models.items()}
    total = np.array([fit.log_evidence - fit.unit for fit in fits.values()])
    shares = np.exp(total - total.max()) / np.exp(total - total.max()).sum()
    rows = []
    for (name, fit), value, share in zip(fits.items(), total.tolist(), shares.tolist(), strict=True):
        figures = {"log evidence": value, "a row": value / fit.num, "probability": share}
        scores = {} if test is None else score(fit.posterior, models[name], data, test)
        rows.append({"model": name, "weights": fit.weights, **figures, **scores, "seconds": fit.seconds})
    rows.sort(key=lambda row: -row["log evidence"])
    correlation = _rank_correlation(rows)
    posteriors = {name: fit.posterior for name, fit in fits.items()}
    return ModelRanking(rows, _sentences(list(fits.values()), correlation), posteriors, correlation)


class Learnt(NamedTuple):
    """A posterior fitted to standardised rows, with its evidence."""

    posterior: Standardised
    log_evidence: float
    """Log evidence of the standardised rows."""
    unit: float
    """The log of the unit of y, summed over rows: subtract it for the log evidence in the units of y."""
    num: float
    """Number of rows: the sum of their weights."""
    weights: int
    seconds: float


def learn(model: Model, train: Rows, method: Method, *, key: Key, starts: int = 1) -> Learnt:
    """Fit a model from `starts` starting points, and return the posterior with the largest evidence."""
    x, y, weight = as_rows(train)
    keys = [key, *(jax.random.fold_in(key, number) for number in range(1, starts))]
    began = time.perf_counter()
    fits = [fit_standardised(method, model, x, y, weight, key=start_key, progress=False) for start_key in keys]
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
    """NLL of the test rows, and its standard error."""
    scores = -np.asarray(posterior.predict(as_rows(test)[0]).log_prob(as_scored(model, train, test)))
    return {"NLL": float(scores.mean()), "its error": float(scores.std(ddof=1) / np.sqrt(len(scores)))}


def _evidence(fit: Standardised) -> float:
    posterior = fit.posterior
    if not isinstance(posterior, Draws | Linearised | LinearLayer) or posterior.log_evidence is None:
        raise InputError("a posterior with its evidence", type(posterior).__name__, "Use tb.Laplace().")
    return float(posterior.log_evidence)


def refuse(models: Mapping[str, Model], method: Method) -> None:
    """Raise InputError for no model, or a method that does not estimate the evidence."""
    if not models:
        raise InputError("at least one model", "none", 'Write {"small": tb.Model(...), ...}.')
    if not isinstance(method, Laplace | NeuralLinear | TemperedSMC):
        name = type(method).__name__
        raise InputError("a method that estimates the evidence", name, "Use tb.Laplace() or tb.TemperedSMC().")


def _rank_correlation(rows: list[dict[str, Any]]) -> float | None:
    if len(rows) < _FEWEST or "NLL" not in rows[0]:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr([row["log evidence"] for row in rows], [-row["NLL"] for row in rows]).statistic)


def _sentences(fits: list[Learnt], correlation: float | None) -> tuple[str, ...]:
    sentences = []
    if units := {round(fit.unit, 2) for fit in fits} - {0.0}:
        less = " or ".join(f"{unit:,.2f}" for unit in sorted(units))
        sentences.append(f"Log evidence in the units of y: that of standardised y minus n log sd(y) = {less}.")
    if correlation is not None:
        sentences.append(f"Rank correlation of evidence and test log score: {correlation:.2f} over {len(fits)} models.")
    return tuple(sentences)
