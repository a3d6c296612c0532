"""Pruning: weights that are small relative to their uncertainty are set to 0 :cite:p:`blundell2015weight`."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge import metrics
from tunbridge.core import tables, tree
from tunbridge.core.declared import Count, as_floats, checked
from tunbridge.core.errors import InputError
from tunbridge.core.loaders import as_table
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.laplace.gaussian import StructuredGaussian
from tunbridge.inference.point.lowrank import LowRankGaussian
from tunbridge.inference.posteriors import Point, Posterior
from tunbridge.inference.pruned import Pruned
from tunbridge.inference.standardised import Standardised, inner
from tunbridge.inference.vi.posterior import VariationalGaussian
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model
from tunbridge.model.networks.layout import require_known
from tunbridge.predict.parts import check_one_task

By = Literal["snr", "magnitude"]
FRACTIONS = (0.0, 0.5, 0.75, 0.9, 0.95, 0.98)
"""Fractions of the weights that `pruning_curve` removes by default."""


@checked
def signal_to_noise(posterior: Posterior) -> PyTree:
    r"""Each weight's ratio :math:`|\mu| / \sigma` of posterior mean to posterior standard deviation.

    A weight without uncertainty has an infinite ratio, or the ratio 0 if it is 0. If the prior's scales are unknown,
    the weights are computed with the scales at their posterior mean, so the ratios ignore uncertainty about the scales.

    Parameters
    ----------
    posterior
        A normal posterior over weights: `VariationalGaussian`, `LowRankGaussian` or `StructuredGaussian`, also pruned
        or `Standardised`. Correlations are ignored: each weight counts by its marginal variance.
    """
    return _ratios(*_moments(inner(posterior)))


@checked
def decibels(ratios: PyTree) -> PyTree:
    r"""Ratios in dB as amplitudes, :math:`20 \log_{10} (|\mu| / \sigma)`, so that 0 dB is :math:`|\mu| = \sigma`.

    Papers that give dB without a formula may use :math:`10 \log_{10}`, which is half of this.

    Examples
    --------
    >>> print(decibels(np.array([0.1, 1.0, 10.0])))
    [-20.   0.  20.]
    """
    ratios = jax.tree.map(lambda ratio: as_floats(ratio, "ratios"), ratios)
    if any((ratio < 0).any() for ratio in jax.tree.leaves(ratios)):
        raise InputError("ratios of at least 0", "one below", "Pass compression.signal_to_noise(posterior).")
    with np.errstate(divide="ignore"):
        return jax.tree.map(lambda ratio: 20.0 * np.log10(ratio), ratios)


@checked
def prune_by_snr(posterior: Posterior, fraction: float, *, biases: bool = True) -> Posterior:
    r"""Set the weights with the smallest :math:`|\mu| / \sigma` to 0 :cite:p:`blundell2015weight`.

    The remaining weights keep their distribution: nothing is refitted, and correlated weights are not conditioned on
    the zeros.

    Parameters
    ----------
    posterior
        As in `signal_to_noise`.
    fraction
        Fraction of the weights to remove, from 0 to 1, counted over the whole network.
    biases
        Whether biases and the parameters of norms are counted and may be removed. False keeps them all, and needs a
        network whose layout gives the role of each parameter.
    """
    return _outer(posterior, _prune(inner(posterior), fraction, "snr", biases))


@checked
def prune_by_magnitude(posterior: Posterior, fraction: float, *, biases: bool = True) -> Posterior:
    r"""Set the weights with the smallest :math:`|\mu|` to 0, as a baseline for `prune_by_snr`.

    Parameters
    ----------
    posterior
        As in `signal_to_noise`, or `Point`.
    fraction, biases
        As in `prune_by_snr`.
    """
    return _outer(posterior, _prune(inner(posterior), fraction, "magnitude", biases))


@dataclasses.dataclass(frozen=True)
class PruningCurve(tables.Table):
    """The table that `pruning_curve` returns: one row per fraction."""

    caption = "pruning"
    sentences = ()

    rows: list[dict[str, Any]]
    """For each fraction: the criterion, the fraction removed, the number of weights kept, error or RMSE, and NLL."""


@checked
def pruning_curve(
    posterior: Posterior,
    data: Any,
    fractions: Sequence[float] = FRACTIONS,
    *,
    by: By = "snr",
    biases: bool = True,
    key: Key | None = None,
    num: Count | None = None,
) -> PruningCurve:
    """Scores of a posterior as growing fractions of its weights are set to 0.

    Parameters
    ----------
    posterior
        A posterior that `prune_by_snr` or `prune_by_magnitude` accepts.
    data
        Rows to score on, `Data` or a pair (x, y), in the units that `predict` takes and returns.
    fractions
        Fractions of the weights to remove.
    by
        "snr" or "magnitude".
    biases
        As in `prune_by_snr`.
    key, num
        Passed to `Posterior.predict`, the same for every fraction.
    """
    check_one_task(posterior.model.likelihood)
    table = as_table(data)
    truth = posterior.model.likelihood.check(table.y)
    rows = []
    for fraction in fractions:
        pruned = _prune(inner(posterior), fraction, by, biases)
        predictive = _outer(posterior, pruned).predict(table.x, key=key, num=num)
        if isinstance(posterior.model.likelihood, OfClasses):
            score = {"error": 1.0 - metrics.accuracy(predictive, truth)}
        else:
            score = {"RMSE": metrics.rmse(predictive, truth)}
        figures = {**score, "NLL": -metrics.log_score(predictive, truth)}
        rows.append({"by": by, "removed": fraction, "kept": pruned.num_kept, **figures})
    return PruningCurve(rows)


def _prune(posterior: Posterior, fraction: float, by: By, biases: bool) -> Pruned:
    if not 0.0 <= fraction <= 1.0:
        raise InputError("a fraction from 0 to 1", f"{fraction}", "Write 0.75 for three weights of four.")
    if isinstance(posterior, Point) and by == "snr":
        raise _refused(posterior)
    mean, sd = _moments(posterior)
    scores = _ratios(mean, sd) if by == "snr" else jax.tree.map(np.abs, mean)
    kept = _kept(scores, fraction, _candidates(posterior.model, mean, biases))
    unpruned = posterior
    if isinstance(posterior, Pruned):
        unpruned, kept = posterior.posterior, jax.tree.map(np.logical_and, kept, posterior.kept)
    kept = jax.tree.map(jnp.asarray, kept)
    return Pruned(posterior.model, posterior.key, unpruned, kept, notes=unpruned.notes, provenance=unpruned.provenance)


def _kept(scores: PyTree, fraction: float, candidates: np.ndarray) -> PyTree:
    """A mask that is False at the smallest scores among the candidates."""
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(scores)])
    places = np.flatnonzero(candidates)
    smallest = places[np.argsort(flat[places], kind="stable")[: round(fraction * len(places))]]
    kept = np.ones(len(flat), bool)
    kept[smallest] = False
    return tree.unravel(scores, kept)


def _candidates(model: Model, weights: PyTree, biases: bool) -> np.ndarray:
    """Which weights, raveled into one vector, are counted and may be removed."""
    layout = model.network.layout(weights)
    if not biases:
        require_known(layout, "biases=False")
    counts = [biases or leaf.role in ("weight", "embedding") for leaf in jax.tree.leaves(layout)]
    return np.repeat(counts, [leaf.size for leaf in jax.tree.leaves(weights)])


def _ratios(mean: PyTree, sd: PyTree) -> PyTree:
    with np.errstate(divide="ignore", invalid="ignore"):
        return jax.tree.map(lambda m, s: np.where(m == 0, np.zeros_like(m), np.abs(m) / s), mean, sd)


def _moments(posterior: Posterior) -> tuple[PyTree, PyTree]:
    """Mean and standard deviation of the network's weights, with the prior's scales at their mean."""
    if isinstance(posterior, Pruned):
        mean, sd = (jax.tree.map(np.multiply, moment, posterior.kept) for moment in _moments(posterior.posterior))
        return mean, sd
    if isinstance(posterior, StructuredGaussian):
        centre, variance = posterior.params, posterior.covariance.diagonal()
        _refuse_mixing(posterior.model, centre)
        mean = posterior.model.weights(centre)
        sd = tree.unravel(mean, np.sqrt(variance))
    else:
        centre, variance = _raw_moments(posterior)
        _refuse_mixing(posterior.model, centre)
        mean = posterior.model.weights(centre)
        sd = posterior.model.weights(centre._replace(weights=jax.tree.map(np.sqrt, variance)))
    return jax.tree.map(np.asarray, mean), jax.tree.map(np.abs, sd)


def _raw_moments(posterior: Posterior) -> tuple[Params, PyTree]:
    """The mean of all parameters, and the variances of the raw weights."""
    if isinstance(posterior, VariationalGaussian):
        return posterior.q.mean, posterior.q.variance().weights
    if isinstance(posterior, LowRankGaussian):
        squares = jax.tree.map(lambda rows: jnp.sum(jnp.square(rows), axis=0), posterior.factors)
        return posterior.mean, jax.tree.map(jnp.add, posterior.variance, squares)
    if isinstance(posterior, Point):
        return posterior.params, jax.tree.map(np.zeros_like, posterior.params.weights)
    raise _refused(posterior)


def _refuse_mixing(model: Model, params: Params) -> None:
    """Raise InputError unless each weight is a multiple of its own raw coordinate, so that zeros stay zeros."""
    if not model.elementwise(params):
        raise InputError(
            "a prior under which each weight is a scale times one number",
            f"{type(model.prior).__name__}, which mixes them",
            "Fit with a prior of independent weights.",
        )


def _outer(posterior: Posterior, pruned: Pruned) -> Posterior:
    """The pruned posterior, wrapped in the scaling of `posterior` if that is `Standardised`."""
    return dataclasses.replace(posterior, posterior=pruned) if isinstance(posterior, Standardised) else pruned


def _refused(posterior: Posterior) -> InputError:
    return InputError(
        "a normal posterior with a mean and a variance for each weight",
        type(posterior).__name__,
        "Fit tb.MeanField or tb.BayesByBackprop, pass a Linearised's gaussian, or prune the members of a Mixture.",
    )
