"""Step-size schedules: factors by which the initial step size is multiplied along a run."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError

__all__ = ["Annealed", "Constant", "Cosine", "Cyclical", "Decaying", "Pace", "Pacing"]


class Pace(NamedTuple):
    """Factors of a sampler's step size and of the standard deviation of its noise, at one step."""

    step: Array
    noise: Array


class Pacing(Module):
    """A schedule of step size and noise that a sampler can follow."""

    asymptotically_exact: eqx.AbstractClassVar[bool]
    """Whether step sizes fall to 0, slowly enough, for a stochastic-gradient sampler to be asymptotically unbiased."""
    reach: eqx.AbstractClassVar[float]
    """How many times larger than a constant step size the first one may be."""

    @abc.abstractmethod
    def at(self, step: Array) -> Pace:
        """The factors at step 0, 1, ... after warm-up."""

    def samples(self, steps: np.ndarray) -> np.ndarray:
        """Whether the state after each of these steps may be kept as a draw; not in an exploration phase."""
        return np.ones(len(steps), bool)

    def settled(self, thin: int) -> "Pacing":
        """The schedule with settings left open filled in, for a run that keeps every `thin`-th step."""
        return self


class Constant(Pacing):
    """The same step size throughout."""

    asymptotically_exact = False
    reach = 1.0

    def __call__(self, fraction: Array) -> Array:
        """The factor 1 at any fraction of the run."""
        return jnp.ones_like(fraction)

    def at(self, step: Array) -> Pace:
        """The factors 1 and 1."""
        factor = jnp.ones((), jnp.result_type(float))
        return Pace(factor, factor)


class Cosine(Module):
    r"""A factor that falls from 1 to 0 as :math:`\frac12 (1 + \cos \pi u)` :cite:p:`loshchilov2017sgdr`."""

    def __call__(self, fraction: Array) -> Array:
        """The factor at a fraction u of the run."""
        return 0.5 * (1.0 + jnp.cos(jnp.pi * fraction))


class Decaying(Pacing):
    r"""Step sizes :math:`\eta_t = a (b + t)^{-\gamma}` :cite:p:`welling2011sgld`, with a such that the first is as set.

    :math:`\sum_t \eta_t = \infty` lets the chain go anywhere and :math:`\sum_t \eta_t^2 < \infty` lets its bias vanish
    :cite:p:`robbins1951stochastic`. Both hold only for :math:`\frac12 < \gamma \le 1`; other values are refused.

    Parameters
    ----------
    b
        Number of steps after which the step size has fallen by the factor :math:`2^{-\gamma}`.
    gamma
        The exponent :math:`\gamma`.

    Examples
    --------
    >>> Decaying(b=100.0, gamma=1.0).at(100).step
    0.5
    """

    b: float = eqx.field(default=1000.0, converter=float)
    gamma: float = eqx.field(default=0.55, converter=float)

    asymptotically_exact = True
    reach = 1.0

    def __check_init__(self):
        if not 0.5 < self.gamma <= 1.0:
            raise InputError(
                "gamma above 1/2 and at most 1, so that steps sum to infinity and their squares do not",
                f"{self.gamma}",
                "Try gamma=0.55.",
            )
        if not self.b > 0:
            raise InputError("b above 0", f"{self.b}", "Try b=1000.")

    def at(self, step: Array) -> Pace:
        r"""The factors :math:`(1 + t / b)^{-\gamma}` and 1."""
        factor = (1.0 + step / self.b) ** -self.gamma
        return Pace(factor, jnp.ones_like(factor))


def _optional_float(given: float | None) -> float | None:
    return None if given is None else float(given)


class Cyclical(Pacing):
    r"""Cycles of :math:`\frac12 (1 + \cos \pi u)`: large steps at first to find another mode, then small to sample it.

    :cite:t:`zhang2020cyclical` leave the noise out in the first part of a cycle, the exploration, and keep no draws
    from it; :cite:t:`izmailov2021what` do neither.

    Parameters
    ----------
    length
        Steps per cycle; None takes `Run.thin`, so that one draw is kept at the end of each cycle.
    exploration
        The fraction of a cycle without noise, from 0 to below 1.
    """

    length: Any = eqx.field(default=None, converter=_optional_float)
    exploration: float = eqx.field(default=0.0, converter=float)

    asymptotically_exact = False
    reach = 3.0

    def __check_init__(self):
        if self.length is not None and not self.length >= 1:
            raise InputError("cycles of at least 1 step", f"{self.length}", "Leave length= out for Run.thin.")
        if not 0.0 <= self.exploration < 1.0:
            raise InputError("an exploration from 0 to below 1", f"{self.exploration}", "Try 0.25.")

    def at(self, step: Array) -> Pace:
        """The factors at a step, which lies at the fraction u of its cycle."""
        u = (step % self.length) / self.length
        return Pace(0.5 * (1.0 + jnp.cos(jnp.pi * u)), jnp.where(u < self.exploration, 0.0, 1.0))

    def samples(self, steps: np.ndarray) -> np.ndarray:
        """Whether each of these steps lies after the exploration of its cycle, where noise is added."""
        return (steps % self.length) / self.length >= self.exploration

    def settled(self, thin: int) -> "Cyclical":
        """The schedule with cycles of `thin` steps, so one draw per cycle, unless a length is given."""
        return self if self.length is not None else Cyclical(thin, self.exploration)


_ROUNDING = 1e-6


class Annealed(Pacing):
    r"""Cycles of three phases: large steps, steps that fall geometrically, small steps, at which draws are taken.

    Gradient noise heats a direction more, the larger its curvature and the step size are. Large steps move along the
    flat directions, which they hardly heat. While steps fall, one stiff direction after another reaches its own
    temperature, which it does quickly; at the small steps all directions have reached it.

    Parameters
    ----------
    length
        Steps per cycle.
    lowest
        The small step size as a fraction of the large one, above 0 and below 1.
    exploration, sampling
        The fractions of a cycle with large and with small steps, the latter above 0; together at most 1.

    Examples
    --------
    >>> cycle = Annealed(100, lowest=0.01, exploration=0.4, sampling=0.2)
    >>> [round(float(cycle.at(step).step), 4) for step in (0, 40, 60, 80, 99)]
    [1.0, 1.0, 0.1, 0.01, 0.01]
    """

    length: float = eqx.field(converter=float)
    lowest: float = eqx.field(default=0.02, converter=float)
    exploration: float = eqx.field(default=0.4, converter=float)
    sampling: float = eqx.field(default=0.25, converter=float)

    asymptotically_exact = False
    reach = 3.0

    def __check_init__(self):
        if not self.length >= 1:
            raise InputError("cycles of at least 1 step", f"{self.length}", "Give length= some epochs of steps.")
        if not 0.0 < self.lowest < 1.0:
            raise InputError("a lowest factor above 0 and below 1", f"{self.lowest}", "Try 0.02.")
        if self.exploration < 0.0 or not self.sampling > 0.0 or not self.exploration + self.sampling <= 1.0:
            got = f"{self.exploration} and {self.sampling}"
            raise InputError(
                "an exploration of at least 0 and a sampling above 0, together at most 1", got, "Try 0.4 and 0.25."
            )

    def at(self, step: Array) -> Pace:
        """The factors at a step, which lies at the fraction u of its cycle."""
        u = (step % self.length) / self.length
        falling = jnp.maximum(1.0 - self.exploration - self.sampling, 1e-6)
        fallen = jnp.clip((u - self.exploration) / falling, 0.0, 1.0)
        factor = self.lowest**fallen
        return Pace(factor, jnp.ones_like(factor))

    def samples(self, steps: np.ndarray) -> np.ndarray:
        """Whether each of these steps lies in the sampling phase of its cycle."""
        return (steps % self.length) / self.length >= 1.0 - self.sampling - _ROUNDING
