"""How a step size changes along a run: factors of the first one."""

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
    """What a step of a sampler multiplies its step size and the standard deviation of its noise by."""

    step: Array
    noise: Array


class Pacing(Module):
    """A schedule that a sampler can follow."""

    asymptotically_exact: eqx.AbstractClassVar[bool]
    """Whether steps become small enough, slowly enough, for a stochastic-gradient sampler to have no bias left."""
    reach: eqx.AbstractClassVar[float]
    """How many times larger its first step may be than a constant one."""

    @abc.abstractmethod
    def at(self, step: Array) -> Pace:
        """The factors of step 0, 1, ... after warm-up."""

    def samples(self, steps: np.ndarray) -> np.ndarray:
        """Whether states after these steps are draws; those of an exploration are not."""
        return np.ones(len(steps), bool)

    def settled(self, thin: int) -> "Pacing":
        """The schedule of a run that keeps every `thin`-th step."""
        return self


class Constant(Pacing):
    """The same step size throughout."""

    asymptotically_exact = False
    reach = 1.0

    def __call__(self, fraction: Array) -> Array:
        """1, whatever the fraction of the run that is done."""
        return jnp.ones_like(fraction)

    def at(self, step: Array) -> Pace:
        """1 and 1."""
        one = jnp.ones((), jnp.result_type(float))
        return Pace(one, one)


class Cosine(Module):
    r"""From 1 to 0 as :math:`\frac12 (1 + \cos \pi u)` :cite:p:`loshchilov2017sgdr`."""

    def __call__(self, fraction: Array) -> Array:
        """The factor at a fraction u of the run."""
        return 0.5 * (1.0 + jnp.cos(jnp.pi * fraction))


class Decaying(Pacing):
    r"""Steps :math:`\eta_t = a (b + t)^{-\gamma}` :cite:p:`welling2011sgld`, where a makes the first one the step size.

    :math:`\sum_t \eta_t = \infty` lets the chain go anywhere and :math:`\sum_t \eta_t^2 < \infty` lets its bias vanish
    :cite:p:`robbins1951stochastic`: both hold for :math:`\frac12 < \gamma \le 1` alone, and other values are refused.

    Parameters
    ----------
    b
        After so many steps the step size has fallen by the factor :math:`2^{-\gamma}`.
    gamma
        :math:`\gamma`.

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
        r""":math:`(1 + t / b)^{-\gamma}` and 1."""
        factor = (1.0 + step / self.b) ** -self.gamma
        return Pace(factor, jnp.ones_like(factor))


def _length(given: float | None) -> float | None:
    return None if given is None else float(given)


class Cyclical(Pacing):
    r"""Cycles of :math:`\frac12 (1 + \cos \pi u)`: hot at first to find another place, then cool to sample it.

    :cite:t:`zhang2020cyclical` leave the noise out in the first part of a cycle, the exploration, and keep no draws of
    it; :cite:t:`izmailov2021what` do not.

    Parameters
    ----------
    length
        Steps a cycle; None is `Run.thin`, so that one draw is kept of each cycle, at its end.
    exploration
        The part of a cycle without noise, from 0 to 1.
    """

    length: Any = eqx.field(default=None, converter=_length)
    exploration: float = eqx.field(default=0.0, converter=float)

    asymptotically_exact = False
    reach = 3.0

    def __check_init__(self):
        if self.length is not None and not self.length >= 1:
            raise InputError("cycles of at least 1 step", f"{self.length}", "Leave length= out for Run.thin.")
        if not 0.0 <= self.exploration < 1.0:
            raise InputError("an exploration from 0 to below 1", f"{self.exploration}", "Try 0.25.")

    def at(self, step: Array) -> Pace:
        """Of a step at a part u of its cycle."""
        u = (step % self.length) / self.length
        return Pace(0.5 * (1.0 + jnp.cos(jnp.pi * u)), jnp.where(u < self.exploration, 0.0, 1.0))

    def samples(self, steps: np.ndarray) -> np.ndarray:
        """Whether states after these steps come with noise."""
        return (steps % self.length) / self.length >= self.exploration

    def settled(self, thin: int) -> "Cyclical":
        """With a draw a cycle, unless its length is given."""
        return self if self.length is not None else Cyclical(thin, self.exploration)


_ROUNDING = 1e-6


class Annealed(Pacing):
    r"""Cycles of three parts: large steps, steps that fall geometrically, small steps, at which draws are taken.

    What a noisy gradient heats a direction by grows with its curvature and with the step. Large steps move along the
    flat directions, which they hardly heat; while they fall, one stiff direction after another comes to its own
    temperature, which it does quickly; at the small ones all have it.

    Parameters
    ----------
    length
        Steps a cycle.
    lowest
        The small steps over the large ones, above 0 and below 1.
    exploration, sampling
        The first and the last part of a cycle, the latter above 0. Together at most 1.

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
            raise InputError("an exploration and a sampling above 0, together at most 1", got, "Try 0.4 and 0.25.")

    def at(self, step: Array) -> Pace:
        """Of a step at a part u of its cycle."""
        u = (step % self.length) / self.length
        falling = jnp.maximum(1.0 - self.exploration - self.sampling, 1e-6)
        fallen = jnp.clip((u - self.exploration) / falling, 0.0, 1.0)
        factor = self.lowest**fallen
        return Pace(factor, jnp.ones_like(factor))

    def samples(self, steps: np.ndarray) -> np.ndarray:
        """Whether states after these steps are of the last part."""
        return (steps % self.length) / self.length >= 1.0 - self.sampling - _ROUNDING
