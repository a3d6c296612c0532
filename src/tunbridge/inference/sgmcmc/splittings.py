r"""Integrators of stochastic-gradient dynamics: one step of each takes one gradient.

With the step size :math:`\eta`, the metric A and momentum r in units of the gradient, all of them are splittings of

.. math::

    dw = A r \, ds, \qquad dr = \nabla \log \pi \, dt - \alpha r \, dt + \text{noise}.

In equilibrium w follows the posterior and :math:`r \sim N(0, A^{-1} / \eta)`, up to the factor `unit`. When the
step size changes, r is rescaled to keep its energy.
"""

import abc
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.inference.sgmcmc.preconditioners import Metric, times

__all__ = ["BADODAB", "BAOAB", "Euler", "Motion", "Overdamped", "Splitting", "Thermostat"]


class Motion(NamedTuple):
    """Position, momentum, friction and last step size of a chain."""

    position: Array
    momentum: Array
    """r."""
    friction: Array
    r""":math:`\alpha`, the share of momentum that a step loses."""
    step_size: Array
    r""":math:`\eta` of the last step."""


class Push(NamedTuple):
    """The gradient, the noise and the step size of one step."""

    gradient: Array
    """An estimate of the gradient of the log posterior."""
    step_size: Array
    metric: Metric | None
    shake: Array
    """Noise whose covariance is 1 / A times the square of the schedule's noise factor."""
    noise: Array
    """Amount of noise to inject: twice the friction, less what the gradient brings along."""


class Splitting(Module):
    """An integrator: how a step is composed."""

    @abc.abstractmethod
    def advance(self, motion: Motion, push: Push) -> Motion:
        """Motion after one step."""

    @abc.abstractmethod
    def unit(self, friction: Array) -> Array:
        r"""Variance of :math:`\sqrt{\eta A} \, r` in equilibrium."""


def _carried(motion: Motion, push: Push) -> Array:
    """Momentum rescaled to the same energy under the new step size."""
    return jnp.sqrt(motion.step_size / push.step_size) * motion.momentum


def _spread(push: Push, noise: Array) -> Array:
    """Noise to add to r."""
    return jnp.sqrt(noise / push.step_size) * push.shake


class Overdamped(Splitting):
    r"""Langevin dynamics without momentum :cite:p:`welling2011sgld`: :math:`w' = w + \eta A g + \sqrt{2 \eta A}\, \xi`.

    Without noise it is gradient ascent.
    """

    def advance(self, motion: Motion, push: Push) -> Motion:
        """Motion after one step."""
        r = push.gradient + _spread(push, push.noise)
        return Motion(motion.position + push.step_size * times(push.metric, r), r, motion.friction, push.step_size)

    def unit(self, friction: Array) -> Array:
        """Variance 2, which the noise alone gives."""
        return 2.0 * jnp.ones_like(friction)


class Euler(Splitting):
    r"""Momentum first, then the position :cite:p:`chen2014sghmc`.

    .. math::

        r' = (1 - \alpha) r + g + \sqrt{2 (\alpha - \hat\beta) / \eta} \, A^{-1/2} \xi, \qquad w' = w + \eta A r'

    Without noise it is SGD with momentum :math:`1 - \alpha`.
    """

    def advance(self, motion: Motion, push: Push) -> Motion:
        """Motion after one step."""
        r = push.gradient + (1.0 - motion.friction) * _carried(motion, push) + _spread(push, push.noise)
        return Motion(motion.position + push.step_size * times(push.metric, r), r, motion.friction, push.step_size)

    def unit(self, friction: Array) -> Array:
        r"""Variance :math:`2 / (2 - \alpha)`."""
        return 2.0 / (2.0 - friction)


class BAOAB(Splitting):
    r"""A kick, half a drift, friction and noise, half a drift :cite:p:`leimkuhler2013baoab`.

    For a normal posterior and full gradients its positions have no bias, whatever the step size. The kicks before and
    after the drifts are merged into one, so that a step takes one gradient.
    """

    def advance(self, motion: Motion, push: Push) -> Motion:
        """Motion after one step."""
        r = _carried(motion, push) + push.gradient
        drift = 0.5 * push.step_size
        position = motion.position + drift * times(push.metric, r)
        kept = 1.0 - motion.friction
        r = kept * r + _spread(push, 0.5 * push.noise * (1.0 + kept))  # 1 - kept^2, less what the gradient brings
        return Motion(position + drift * times(push.metric, r), r, motion.friction, push.step_size)

    def unit(self, friction: Array) -> Array:
        """Variance 1, which friction and noise keep."""
        return jnp.ones_like(friction)


class Thermostat(Splitting):
    r"""Friction that adapts to the kinetic energy :cite:p:`ding2014sgnht`, whatever heats the chain.

    .. math::

        r' = (1 - \alpha) r + g + \sqrt{2 a / \eta} \, A^{-1/2} \xi, \quad w' = w + \eta A r', \quad
        \alpha' = \alpha + \frac{\eta}{Q} \big( \tfrac{\eta}{d} r'^\top A r' - 1 \big)

    :math:`\alpha` fluctuates around its mean with variance :math:`\eta / (d Q)`. Q is 1, as published, unless the
    variance would exceed :math:`(a / 3)^2`: with few unknowns friction would often stay below 0 for long, and the chain
    would diverge.
    """

    def advance(self, motion: Motion, push: Push) -> Motion:
        """Motion after one step."""
        r = push.gradient + (1.0 - motion.friction) * _carried(motion, push) + _spread(push, push.noise)
        position = motion.position + push.step_size * times(push.metric, r)
        return Motion(position, r, _friction(motion.friction, r, push, push.step_size), push.step_size)

    def unit(self, friction: Array) -> Array:
        """Variance 1, which the friction adapts to."""
        return jnp.ones_like(friction)


class BADODAB(Splitting):
    """`Thermostat` with its parts in a symmetric order :cite:p:`leimkuhler2016adaptive`: less bias at equal steps."""

    def advance(self, motion: Motion, push: Push) -> Motion:
        """Motion after one step."""
        drift = 0.5 * push.step_size
        r = _carried(motion, push) + push.gradient
        position = motion.position + drift * times(push.metric, r)
        alpha = _friction(motion.friction, r, push, drift)
        safe = jnp.where(jnp.abs(alpha) < 1e-6, 1e-6, alpha)
        r = jnp.exp(-alpha) * r + _spread(push, 0.5 * push.noise * -jnp.expm1(-2.0 * safe) / safe)
        alpha = _friction(alpha, r, push, drift)
        return Motion(position + drift * times(push.metric, r), r, alpha, push.step_size)

    def unit(self, friction: Array) -> Array:
        """Variance 1, which the friction adapts to."""
        return jnp.ones_like(friction)


def _friction(friction: Array, r: Array, push: Push, time: Array) -> Array:
    """Friction after a time, which grows while the kinetic energy is above its mean."""
    inertia = jnp.maximum(1.0, push.step_size / (r.shape[0] * (push.noise / 6.0) ** 2))
    return friction + time / inertia * (push.step_size * jnp.mean(r * times(push.metric, r)) - 1.0)
