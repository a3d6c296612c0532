"""How many hidden units there are: the answer of `ReversibleJump`."""

import dataclasses
from typing import Any, cast

import jax
import numpy as np
from numpyro.distributions import Distribution

from tunbridge import diagnostics
from tunbridge.core import tables
from tunbridge.core.declared import checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key
from tunbridge.inference.chains import Chains
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.standardised import inner
from tunbridge.model.priors.exchangeable import Exchangeable

_DRAWS = 20_000
"""Draws of the prior of alpha over which the prior probability of a number of units is averaged."""


@dataclasses.dataclass(frozen=True)
class Units(tables.Table):
    """The result of `num_units`: a row per number of hidden units."""

    caption = "number of hidden units"

    rows: list[dict[str, Any]]
    sentences: tuple[str, ...] = ()

    @property
    def best(self) -> int:
        """The most probable number."""
        return int(max(self.rows, key=lambda row: row["posterior"])["units"])


@checked
def num_units(posterior: Posterior) -> Units:
    """Prior and posterior probability of each number of hidden units, with the Monte Carlo error of the latter.

    For a number that all draws have, or none, the error is the share of one draw.

    Parameters
    ----------
    posterior
        Draws of `ReversibleJump`, also `Standardised`.
    """
    chains = inner(posterior)
    prior = chains.model.prior if isinstance(chains, Chains) else None
    if not isinstance(chains, Chains) or not isinstance(prior, Exchangeable) or not prior.discrete:
        raise InputError(
            "draws of a model with an unknown number of units", type(chains).__name__, "Fit it by tb.ReversibleJump()."
        )
    counts = np.asarray(chains.params.scales[-1])
    most = cast(int, prior.units)
    before = _prior(prior, jax.random.key(0))
    rows = []
    for number in range(most + 1):
        found = (counts == number).astype(float)
        error = float(diagnostics.mcse(found[..., None])[0]) if 0.0 < found.mean() < 1.0 else 1.0 / counts.size
        rows.append({"units": number, "prior": before[number], "posterior": float(found.mean()), "error": error})
    sentences: tuple[str, ...] = ()
    if rows[-1]["posterior"] > 0.05:
        sentences = (f"{rows[-1]['posterior']:.0%} are at the most, {most}: give the network more units.",)
    return Units(rows, sentences)


def _prior(prior: Exchangeable, key: Key) -> list[float]:
    """Prior probabilities of 0, 1, ... units, averaged over alpha."""
    alpha = prior.alpha
    if isinstance(alpha, Distribution):
        alpha = np.clip(np.asarray(alpha.sample(key, (_DRAWS,)), np.float64), 1e-9, 1.0 - 1e-7)
    numbers = range(cast(int, prior.units) + 1)
    return [float(np.mean(np.exp(prior.log_count(float(number), np.asarray(alpha))))) for number in numbers]
