"""The best action at each point, by expected or risk-averse utility over the predictive distribution."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from tunbridge.applications.decisions.actions import Continuous, Listed, listed
from tunbridge.applications.decisions.outcomes import Outcomes, outcomes
from tunbridge.applications.decisions.utilities import Utility, as_utility, check_payoff
from tunbridge.core import tables
from tunbridge.core.declared import Count, Positive, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Predictive

_STEPS, _STEP = 300, 0.02
"""Steps of Adam from the best start, and the size of the first, in the coordinates of a continuous action."""
_SHOWN = 10
REFERRED = "refer"


@dataclasses.dataclass(frozen=True)
class Decision(tables.Table):
    """The result of `decide`: the action at each point, and what it is worth."""

    caption = "decisions"

    actions: np.ndarray
    """The best actions, (points,) or (points, entries); of named actions their numbers. -1 or NaN where referred."""
    worth: np.ndarray
    """Certainty equivalent of what is done at each point, in the units of the payoff, (points,)."""
    worths: np.ndarray | None
    """Certainty equivalents of all actions of a list, (actions, points)."""
    names: tuple[str, ...] | None = None
    """Names of the actions, where they have names."""
    referred: np.ndarray | None = None
    """Points (points,) that are referred, if that was possible."""

    @property
    def chosen(self) -> list[Any]:
        """The names of what is done at each point, or its value; "refer" where it is referred."""
        away = np.zeros(len(self.worth), bool) if self.referred is None else self.referred
        plain = self.actions.tolist() if self.names is None else [self.names[int(index)] for index in self.actions]
        return [REFERRED if gone else action for action, gone in zip(plain, away, strict=True)]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The first points."""
        return [
            {"point": str(place), "action": _written(action), "worth": float(self.worth[place])}
            for place, action in enumerate(self.chosen[:_SHOWN])
        ]

    @property
    def sentences(self) -> tuple[str, ...]:
        """How many points there are, and how many are referred."""
        num = len(self.worth)
        more = (f"{num:,} points; the first {_SHOWN} are shown.",) if num > _SHOWN else ()
        away = () if self.referred is None else (f"{int(self.referred.sum()):,} of {num:,} points are referred.",)
        return (*more, *away)


@checked
def decide(
    predictive: Predictive,
    actions: Any,
    utility: Any,
    *,
    referral: Positive | None = None,
    key: Key | None = None,
    num: Count = 256,
) -> Decision:
    """Choose the best action at each point of a predictive distribution.

    Classes and counts are enumerated. One real output is cut into `num` cells, so that no draws are needed; of several
    outputs `num` joint draws are averaged. All is computed in double precision. Outcomes rarer than one in a million
    are cut off: a worth that hangs on them, as under extreme aversion to risk, is not found.

    Parameters
    ----------
    predictive
        The distribution of y, as from `Posterior.predict`.
    actions
        What may be done: a list of names; an array of numbers (actions,) or vectors (actions, entries); or a continuous
        set, `Interval` or `Simplex`, over which the utility is optimised by its gradient.
    utility
        `Expected`, `CARA`, `CVaR`, or a payoff, whose expectation is taken: a function of one action (its number, if
        it has a name) and one y, written with `jax.numpy`, or a table (actions, classes).
    referral
        What it costs to learn y before acting, by asking an expert. Points where that is worth more are referred.
        Needs a list of actions.
    key
        For the draws of several outputs; None uses a fixed key.
    num
        Number of cells, or of draws.

    Examples
    --------
    A newsvendor buys at 2 and sells at 5: the best order is the quantile at (5 - 2) / 5.

    >>> import jax, jax.numpy as jnp, numpy as np, tunbridge as tb
    >>> model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(10.0), tb.likelihoods.Gaussian(1.0))
    >>> x = np.linspace(-1.0, 1.0, 20)[:, None]
    >>> posterior = tb.NeuralLinear(tb.MAP(train=tb.Train(10))).fit(model, (x, 9.0 + x), key=jax.random.key(0))
    >>> demand = posterior.predict([[0.5]])
    >>> payoff = lambda order, y: 5.0 * jnp.minimum(order, y) - 2.0 * order
    >>> order = tb.decisions.decide(demand, tb.decisions.Interval(0.0, 20.0), payoff).actions
    >>> bool(abs(order[0] - demand.quantile(0.6)[0, 0]) < 0.02)
    True
    """
    utility = as_utility(utility)
    found = outcomes(predictive, num, key)
    if isinstance(actions, Continuous):
        if referral is not None:
            raise InputError(
                "a list of actions, where referral= is given", shown(actions), "Write np.linspace(a, b, 100)."
            )
        return _optimised(actions, utility, found)
    return _best(listed(actions), utility, found, referral)


def payoffs(actions: Listed, utility: Utility, values: np.ndarray) -> np.ndarray:
    """Payoffs (actions, outcomes, points) of a list of actions; InputError for NaN, or a payoff that does not fit."""
    with jax.enable_x64(True):
        check_payoff(utility, actions.values, values)
        found = np.asarray(_payoffs(utility, actions.values, values))
    if not np.isfinite(found).all():
        place = np.argwhere(~np.isfinite(found))[0]
        action = actions.values[place[0]] if actions.names is None else actions.names[place[0]]
        y = values[tuple(place[1:])]
        raise InputError("finite payoffs", f"{found[tuple(place)]} at action {action}, y {y}", "Mend the payoff.")
    return found


def _best(actions: Listed, utility: Utility, found: Outcomes, referral: float | None) -> Decision:
    each = payoffs(actions, utility, found.values)
    with jax.enable_x64(True):
        worths = np.asarray(_worths(utility, each, found.probs))
        index, points = worths.argmax(axis=0), np.arange(worths.shape[1])
        best, chosen, away = worths[index, points], actions.values[index], None
        if referral is not None:
            known = np.asarray(_worths(utility, each.max(axis=0)[None] - referral, found.probs))[0]
            away = known > best
            best = np.where(away, known, best)
            chosen = np.where(away if chosen.ndim == 1 else away[:, None], -1 if actions.names else np.nan, chosen)
    return Decision(chosen, best, worths, actions.names, away)


def _optimised(actions: Continuous, utility: Utility, found: Outcomes) -> Decision:
    with jax.enable_x64(True):
        check_payoff(utility, jax.vmap(actions.action)(jnp.asarray(actions.starts)), found.values)
        values, probs = np.moveaxis(found.values, 1, 0), found.probs.T
        chosen, worth = (np.asarray(part) for part in _searched(actions, actions.starts, utility, values, probs))
    if not np.isfinite(worth).all():
        raise InputError("finite payoffs", f"{worth[~np.isfinite(worth)][0]}", "Mend the payoff.")
    return Decision(chosen, worth, None)


def _written(action: Any) -> str:
    values = action if isinstance(action, list) else [action]
    return ", ".join(tables.written(value) for value in values)


@jax.jit
def _payoffs(utility: Utility, actions: Array, values: Array) -> Array:
    over_points = jax.vmap(lambda a, y: jnp.asarray(utility.payoff(a, y), float), (None, 0))
    return jax.vmap(jax.vmap(over_points, (None, 0)), (0, None))(actions, values)


@jax.jit
def _worths(utility: Utility, each: Array, probs: Array) -> Array:
    """Certainty equivalents (actions, points) of payoffs (actions, outcomes, points)."""
    return jax.vmap(jax.vmap(utility.worth, (1, 1)), (0, None))(each, probs)


@jax.jit
def _searched(actions: Continuous, starts: Array, utility: Utility, values: Array, probs: Array) -> tuple[Array, Array]:
    """The best action and its worth at each point: from the best of the starts, by Adam with falling steps."""
    solver = optax.adam(optax.cosine_decay_schedule(_STEP, _STEPS))

    def point(values: Array, probs: Array) -> tuple[Array, Array]:
        def loss(coordinates: Array) -> Array:
            action = actions.action(coordinates)
            return -utility.worth(jax.vmap(lambda y: jnp.asarray(utility.payoff(action, y), float))(values), probs)

        def step(carry: Any, _: None) -> tuple[Any, None]:
            at, state, best, least = carry
            reached, gradient = jax.value_and_grad(loss)(at)
            better = reached < least
            updates, state = solver.update(gradient, state)
            kept = jnp.where(better, at, best), jnp.where(better, reached, least)
            return (actions.projected(optax.apply_updates(at, updates)), state, *kept), None

        tried = jax.vmap(loss)(starts)
        start = starts[jnp.argmin(tried)]
        first = (start, solver.init(start), start, jnp.min(tried))
        (_, _, best, least), _ = jax.lax.scan(step, first, None, length=_STEPS)
        return actions.action(best), -least

    return jax.lax.map(lambda pair: point(*pair), (values, probs), batch_size=64)
