"""Smaller networks: weights that are small beside their own uncertainty are set to 0 :cite:p:`blundell2015weight`."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge import metrics
from tunbridge.core import tables, tree
from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.laplace.gaussian import StructuredGaussian
from tunbridge.inference.posteriors import LowRankGaussian, Point, Posterior
from tunbridge.inference.pruned import Pruned
from tunbridge.inference.standardised import Standardised
from tunbridge.inference.vi.posterior import VariationalGaussian
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model
from tunbridge.model.networks.layout import require_known
from tunbridge.predict.parts import check_one_task

FRACTIONS = (0.0, 0.5, 0.75, 0.9, 0.95, 0.98)
"""How many of the weights a curve removes, unless told."""


def signal_to_noise(posterior: Posterior) -> PyTree:
    r"""Of each weight the ratio :math:`|\mu| / \sigma` of its posterior mean and standard deviation.

    A weight that is known has an infinite ratio, one that is known to be 0 the ratio 0. Where the prior's scales are
    unknown, weights are taken at their mean, and a ratio says nothing of the uncertainty about them.

    Parameters
    ----------
    posterior
        Of normal weights: `VariationalGaussian`, `LowRankGaussian` or `StructuredGaussian`, whole or pruned, in the
        units of the data or not. Correlated weights count by their own variances.
    """
    return _ratios(*_moments(_inner(posterior)))


def decibels(ratios: PyTree) -> PyTree:
    r"""Ratios as :math:`20 \log_{10} (|\mu| / \sigma)`: an amplitude's, so that 0 dB is :math:`|\mu| = \sigma`.

    Papers that write dB without a formula may mean half as many.

    Examples
    --------
    >>> print(decibels(np.array([0.1, 1.0, 10.0])))
    [-20.   0.  20.]
    """
    with np.errstate(divide="ignore"):
        return jax.tree.map(lambda ratio: 20.0 * np.log10(ratio), ratios)


def prune_by_snr(posterior: Posterior, fraction: float, *, biases: bool = True) -> Posterior:
    r"""Set those weights to 0 that have the smallest :math:`|\mu| / \sigma` :cite:p:`blundell2015weight`.

    Weights that are left keep their distribution: nothing is fitted again. Correlated ones are not conditioned on the
    zeros.

    Parameters
    ----------
    posterior
        As in `signal_to_noise`.
    fraction
        Of the weights to remove, from 0 to 1, counted over the whole network.
    biases
        Whether biases and norms count and may go; False leaves them alone, and needs a network that tells its roles.
    """
    return _outer(posterior, _prune(_inner(posterior), fraction, "snr", biases))


def prune_by_magnitude(posterior: Posterior, fraction: float, *, biases: bool = True) -> Posterior:
    r"""Set those weights to 0 that have the smallest :math:`|\mu|`: what to compare `prune_by_snr` with.

    Parameters
    ----------
    posterior
        As in `signal_to_noise`, or `Point`.
    fraction, biases
        As in `prune_by_snr`.
    """
    return _outer(posterior, _prune(_inner(posterior), fraction, "magnitude", biases))


@dataclasses.dataclass(frozen=True)
class PruningCurve(tables.Table):
    """What `pruning_curve` found: a row a fraction."""

    caption = "pruning"
    sentences = ()

    rows: list[dict[str, Any]]
    """By what, the fraction removed, the number of weights kept, the error or RMSE, and the NLL."""


def pruning_curve(
    posterior: Posterior,
    data: Data,
    fractions: Sequence[float] = FRACTIONS,
    *,
    by: str = "snr",
    biases: bool = True,
    key: Key | None = None,
    num: int | None = None,
) -> PruningCurve:
    """How well a network predicts with ever fewer of its weights.

    Parameters
    ----------
    posterior
        What `prune_by_snr` or `prune_by_magnitude` takes.
    data
        Rows to be judged on, in the units that `predict` speaks.
    fractions
        Of the weights to remove.
    by
        "snr" or "magnitude".
    biases
        As in `prune_by_snr`.
    key, num
        Those of `Posterior.predict`: the same for every fraction.
    """
    check_one_task(posterior.model.likelihood)
    truth = posterior.model.likelihood.check(data.y)
    rows = []
    for fraction in fractions:
        pruned = _prune(_inner(posterior), fraction, by, biases)
        predictive = _outer(posterior, pruned).predict(data.x, key=key, num=num)
        if isinstance(posterior.model.likelihood, OfClasses):
            score = {"error": 1.0 - metrics.accuracy(predictive, truth)}
        else:
            score = {"RMSE": metrics.rmse(predictive, truth)}
        figures = {**score, "NLL": -metrics.log_score(predictive, truth)}
        rows.append({"by": by, "removed": fraction, "kept": pruned.num_kept, **figures})
    return PruningCurve(rows)


def _prune(posterior: Posterior, fraction: float, by: str, biases: bool) -> Pruned:
    if not 0.0 <= fraction <= 1.0:
        raise InputError("a fraction from 0 to 1", f"{fraction}", "Write 0.75 for three weights of four.")
    if by not in ("snr", "magnitude"):
        raise InputError('by= as "snr" or "magnitude"', repr(by), "Choose one.")
    if isinstance(posterior, Point) and by == "snr":
        raise _refused(posterior)
    mean, sd = _moments(posterior)
    scores = _ratios(mean, sd) if by == "snr" else jax.tree.map(np.abs, mean)
    kept = _kept(scores, fraction, _candidates(posterior.model, mean, biases))
    whole = posterior
    if isinstance(posterior, Pruned):
        whole, kept = posterior.posterior, jax.tree.map(np.logical_and, kept, posterior.kept)
    kept = jax.tree.map(jnp.asarray, kept)
    return Pruned(posterior.model, posterior.key, whole, kept, notes=whole.notes, provenance=whole.provenance)


def _kept(scores: PyTree, fraction: float, candidates: np.ndarray) -> PyTree:
    """False at the smallest scores among the candidates."""
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(scores)])
    places = np.flatnonzero(candidates)
    smallest = places[np.argsort(flat[places], kind="stable")[: round(fraction * len(places))]]
    kept = np.ones(len(flat), bool)
    kept[smallest] = False
    return tree.unravel(scores, kept)


def _candidates(model: Model, weights: PyTree, biases: bool) -> np.ndarray:
    """Which of all weights, in one vector, count."""
    layout = model.network.layout(weights)
    if not biases:
        require_known(layout, "biases=False")
    counts = [biases or leaf.role in ("weight", "embedding") for leaf in jax.tree.leaves(layout)]
    return np.repeat(counts, [leaf.size for leaf in jax.tree.leaves(weights)])


def _ratios(mean: PyTree, sd: PyTree) -> PyTree:
    with np.errstate(divide="ignore", invalid="ignore"):
        return jax.tree.map(lambda m, s: np.where(m == 0, np.zeros_like(m), np.abs(m) / s), mean, sd)


def _moments(posterior: Posterior) -> tuple[PyTree, PyTree]:
    """Mean and standard deviation of the network's own weights, at the mean of the prior's scales."""
    if isinstance(posterior, Pruned):
        mean, sd = (jax.tree.map(np.multiply, part, posterior.kept) for part in _moments(posterior.posterior))
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
    """The mean of everything, and the variances of raw weights."""
    if isinstance(posterior, VariationalGaussian):
        return posterior.q.mean, posterior.q.variance().weights
    if isinstance(posterior, LowRankGaussian):
        squares = jax.tree.map(lambda rows: jnp.sum(jnp.square(rows), axis=0), posterior.factors)
        return posterior.mean, jax.tree.map(jnp.add, posterior.variance, squares)
    if isinstance(posterior, Point):
        return posterior.params, jax.tree.map(np.zeros_like, posterior.params.weights)
    raise _refused(posterior)


def _refuse_mixing(model: Model, params: Params) -> None:
    """InputError unless each weight is a multiple of its own raw coordinate: else zeros would not stay zeros."""
    if not model.elementwise(params):
        raise InputError(
            "a prior under which each weight is a scale times one number",
            f"{type(model.prior).__name__}, which mixes them",
            "Fit with a prior of independent weights.",
        )


def _inner(posterior: Posterior) -> Posterior:
    """That of the standardised model."""
    return posterior.posterior if isinstance(posterior, Standardised) else posterior


def _outer(posterior: Posterior, pruned: Pruned) -> Posterior:
    """What answers in the units of the data where `posterior` does."""
    return dataclasses.replace(posterior, posterior=pruned) if isinstance(posterior, Standardised) else pruned


def _refused(posterior: Posterior) -> InputError:
    return InputError(
        "a posterior of normal weights with a mean and a variance each",
        type(posterior).__name__,
        "Fit tb.MeanField or tb.BayesByBackprop; of Linearised pass its gaussian; prune the members of a Mixture.",
    )
