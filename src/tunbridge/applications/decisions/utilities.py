"""What a decision is worth: a payoff of action and outcome, and an attitude to risk that turns payoffs into one number.

Every worth is a certainty equivalent, in the units of the payoff: the sure payoff that is as good as the risky one.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from tunbridge.core.declared import Module, Positive, as_floats, shown
from tunbridge.core.errors import InputError
from tunbridge.core.types import Scalar


class _Function(eqx.Module):
    function: Callable[[Any, Any], Any] = eqx.field(static=True)

    def __call__(self, action: Array, y: Array) -> Array:
        return self.function(action, y)


class _Table(eqx.Module):
    payoffs: np.ndarray

    def __call__(self, action: Array, y: Array) -> Array:
        return jnp.asarray(self.payoffs)[action, y]


def _as_payoff(payoff: Any) -> Any:
    if isinstance(payoff, _Function | _Table):
        return payoff
    if callable(payoff):
        return _Function(payoff)
    table = as_floats(payoff, "payoff")
    if table.ndim != 2 or not table.size or not np.isfinite(table).all():
        raise InputError(
            "a payoff as a function of (action, y), or a table of finite numbers (actions, classes)",
            shown(payoff),
            "Write lambda action, y: ..., or [[1.0, -5.0], [0.0, 0.0]].",
        )
    return _Table(table)


class Utility(Module):
    """An attitude to risk, applied to a payoff.

    Parameters
    ----------
    payoff
        A function of one action and one y (a number, an array (outputs,), or the number of a class) in `jax.numpy`; or
        a table (actions, classes).
    """

    payoff: Any = eqx.field(converter=_as_payoff)

    @abc.abstractmethod
    def worth(self, payoffs: Array, probs: Array) -> Scalar:
        """Return the certainty equivalent of payoffs (outcomes,) with these probabilities."""


class ExpectedUtility(Utility):
    r"""A utility of the form :math:`g^{-1}(E[g(u)])` with an increasing g."""

    @abc.abstractmethod
    def felt(self, payoffs: Any) -> Any:
        """Return g of payoffs."""

    @abc.abstractmethod
    def certain(self, felt: Any) -> Any:
        """Return the payoff whose g is `felt`."""


class Expected(ExpectedUtility):
    """The expected payoff: no aversion to risk.

    Examples
    --------
    >>> from tunbridge import decisions
    >>> utility = decisions.Expected(lambda action, y: 5.0 * action * y)
    """

    def worth(self, payoffs: Array, probs: Array) -> Scalar:
        """Return the mean payoff."""
        return jnp.sum(probs * payoffs)

    def felt(self, payoffs: Any) -> Any:
        """Return the payoffs."""
        return payoffs

    def certain(self, felt: Any) -> Any:
        """Return `felt`."""
        return felt


class CARA(ExpectedUtility):
    r"""Constant absolute risk aversion, :math:`-\tfrac1\lambda \log E[e^{-\lambda u}]` :cite:p:`pratt1964risk`.

    For a normal payoff the mean minus :math:`\lambda / 2` times the variance.

    Parameters
    ----------
    payoff
        As of `Utility`.
    aversion
        :math:`\lambda`, per unit of the payoff: risks much smaller than its inverse hardly matter.
    """

    aversion: Positive = eqx.field(default=1.0, kw_only=True)

    def worth(self, payoffs: Array, probs: Array) -> Scalar:
        """Return the certainty equivalent."""
        return -logsumexp(-self.aversion * payoffs, b=probs) / self.aversion

    def felt(self, payoffs: Any) -> Any:
        r"""Return :math:`-e^{-\lambda u}`."""
        return -np.exp(-self.aversion * payoffs)

    def certain(self, felt: Any) -> Any:
        r"""Return :math:`-\log(-g) / \lambda`."""
        return -np.log(-felt) / self.aversion


class CVaR(Utility):
    """Conditional value at risk: the mean payoff of the worst `share` of outcomes :cite:p:`rockafellar2000cvar`.

    Parameters
    ----------
    payoff
        As of `Utility`.
    share
        Above 0; at 1 the expected payoff.
    """

    share: Positive = eqx.field(default=0.1, kw_only=True)

    def __check_init__(self):
        if isinstance(self.share, float | int) and self.share > 1.0:
            raise InputError("a share of the outcomes up to 1", f"{self.share}", "Write 0.1 for the worst tenth.")

    def worth(self, payoffs: Array, probs: Array) -> Scalar:
        """Return the mean of the worst payoffs."""
        order = jnp.argsort(payoffs)
        sorted_probs = probs[order]
        before = jnp.cumsum(sorted_probs) - sorted_probs
        taken = jnp.clip(self.share - before, 0.0, sorted_probs)
        return jnp.sum(taken * payoffs[order]) / jnp.sum(taken)


def as_utility(utility: Any) -> Utility:
    """Return a utility as it is, and a payoff as its expectation."""
    return utility if isinstance(utility, Utility) else Expected(utility)


def check_payoff(utility: Utility, actions: Any, values: Any) -> None:
    """Raise InputError unless the payoff of one action and one y is one real number, in a form that JAX can compile.

    Parameters
    ----------
    actions, values
        Actions (actions, ...), and values of y (outcomes, points, ...).
    """
    if isinstance(utility.payoff, _Table):
        wanted, shape = (len(actions), len(values)), utility.payoff.payoffs.shape
        if shape != wanted or not np.issubdtype(values.dtype, np.integer):
            raise InputError(
                f"a table of payoffs (actions, classes), here {wanted}, for a predictive of classes",
                f"shape {shape}",
                "Reshape it; for numbers write a function of action and y.",
            )
    try:
        found = jax.eval_shape(utility.payoff, actions[0], values[0, 0])
    except Exception as error:  # a user's own function may raise anything
        told = (str(error).splitlines() or [""])[0]
        raise InputError(
            "a payoff of one action and one y, written with jax.numpy",
            f"{type(error).__name__}: {told}"[:200],
            "Write jnp.where(y > a, ..., ...) in place of `if`.",
        ) from error
    if jnp.shape(found) != () or not (
        jnp.issubdtype(found.dtype, jnp.floating) or jnp.issubdtype(found.dtype, jnp.integer)
    ):
        raise InputError(
            "one real number as the payoff of one action and one y",
            f"shape {jnp.shape(found)}" if jnp.shape(found) else f"{found.dtype}",
            "Reduce it, with jnp.sum say.",
        )
