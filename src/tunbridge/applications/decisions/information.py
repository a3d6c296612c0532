"""What it would be worth to know more before acting: the outcome, the network, or the answers at further inputs."""

import dataclasses
from typing import Any

import jax
import numpy as np

from tunbridge.applications.decisions.actions import listed
from tunbridge.applications.decisions.choose import payoffs
from tunbridge.applications.decisions.outcomes import by_network
from tunbridge.applications.decisions.utilities import ExpectedUtility, as_utility
from tunbridge.core import tables
from tunbridge.core.data import check_x
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key
from tunbridge.inference.posteriors import Posterior

_BLOCK = 64
"""Points at a time: probabilities of outcomes under every network take memory."""


@dataclasses.dataclass(frozen=True)
class Information(tables.Table):
    """The result of `value_of_information`: gains in worth at each point, in the units of the payoff."""

    caption = "value of information"
    sentences = ("Mean over points of the gain in worth, if this were known before acting.",)

    worth: np.ndarray
    """Worth of the best action now, (points,)."""
    outcome: np.ndarray
    """Gain from knowing y itself, (points,)."""
    network: np.ndarray
    """Gain from knowing the network: from removing all epistemic uncertainty, (points,)."""
    answers: np.ndarray | None
    """Gain from observing y at the further inputs, (points,)."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per kind of knowledge."""
        kinds = {"y itself": self.outcome, "the network": self.network, "y at the further inputs": self.answers}
        return [
            {"known": name, "mean gain": float(gain.mean()), "largest": float(gain.max())}
            for name, gain in kinds.items()
            if gain is not None
        ]


@checked
def value_of_information(
    posterior: Posterior,
    x: Any,
    actions: Any,
    utility: Any,
    *,
    further: Any = None,
    key: Key | None = None,
    num: Count = 64,
    simulations: Count = 500,
) -> Information:
    r"""Return how much better one could act at x, knowing y, the network, or y at further inputs.

    .. math::

        \underbrace{E_y \max_a u(a, y)}_{\text{y known}} \geq
        \underbrace{E_w \max_a E[u(a, y) \mid w]}_{\text{network known}} \geq
        \underbrace{E_{y'} \max_a E[u(a, y) \mid y']}_{\text{y' at further inputs known}} \geq \max_a E[u(a, y)]

    :cite:p:`raiffa1961applied`. The first is the value of perfect information, the last that of sampled
    information: data sets y' are simulated from networks of the posterior, and weigh the networks by their likelihood.

    Parameters
    ----------
    posterior
        A posterior whose predictions average networks.
    x
        Where one acts, (points, ...features).
    actions
        A list of actions, as for `decide`.
    utility
        `Expected`, `CARA` or a payoff, as for `decide`. `CVaR` is no expectation, and is refused.
    further
        Inputs (rows, ...features) at all of which y would be observed; None leaves that question out.
    key
        For simulated data sets; None uses the posterior's own.
    num
        Number of cells of a real output, as for `decide`.
    simulations
        Number of simulated data sets.
    """
    utility = as_utility(utility)
    if not isinstance(utility, ExpectedUtility):
        raise InputError("a utility that is an expectation", type(utility).__name__, "Use Expected or CARA.")
    rows = check_x(x)
    acts, parts = listed(actions), []
    for rows_here in np.array_split(rows, range(_BLOCK, len(rows), _BLOCK)):
        values, probs = by_network(posterior.predict(rows_here), num)
        felt = utility.felt(payoffs(acts, utility, values))
        parts.append(
            (np.einsum("sop,aop->sap", probs, felt), np.einsum("op,op->p", probs.mean(axis=0), felt.max(axis=0)))
        )
    each, outcome = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    best, outcome = utility.certain(each.mean(axis=0).max(axis=0)), utility.certain(outcome)
    network = utility.certain(each.max(axis=1).mean(axis=0))
    answers = None
    if further is not None:
        weights = _weights(posterior.predict(check_x(further)), posterior.key if key is None else key, simulations)
        weighed = np.einsum("ms,sap->map", weights, each)
        without = utility.certain(weighed.mean(axis=0).max(axis=0))  # of the same simulations, so that noise cancels
        answers = np.maximum(utility.certain(weighed.max(axis=1).mean(axis=0)) - without, 0.0)
    return Information(best, np.maximum(outcome - best, 0.0), np.maximum(network - best, 0.0), answers)


def _weights(predictive: Any, key: Key, simulations: int) -> np.ndarray:
    """Posterior weights of the networks after each simulated data set, (simulations, networks)."""
    drawn: list[np.ndarray] = []
    while len(drawn) < simulations:
        key, key_now = jax.random.split(key)
        drawn.extend(np.asarray(predictive.replicates(key_now)))
    some = np.stack(drawn)[np.random.default_rng(0).permutation(len(drawn))[:simulations]]
    different, which = np.unique(some, axis=0, return_inverse=True)  # labels repeat
    log_probs = np.stack([np.asarray(predictive.log_probs(y), np.float64).sum(axis=1) for y in different])
    weights = np.exp(log_probs - log_probs.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True))[which.reshape(-1)]
