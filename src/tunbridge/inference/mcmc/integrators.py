r"""Integrators of Hamiltonian dynamics: leapfrog, and explicit Euler for comparison.

The energy is :math:`H(w, v) = U(w) + \frac12 v^\top M^{-1} v` with the potential :math:`U = -\log \pi`. Its flow,
:math:`\dot w = M^{-1} v,\; \dot v = -\nabla U(w)`, conserves it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc.integrators import IntegratorState, new_integrator_state, velocity_verlet
from jax import Array

from tunbridge.core.declared import MOST, checked, shown
from tunbridge.core.errors import InputError
from tunbridge.core.types import Scalar

__all__ = ["Path", "euler", "leapfrog"]


class Path(NamedTuple):
    """Points of a trajectory, its start included: leading axis num_steps + 1."""

    positions: Array
    momenta: Array
    energies: Array
    """H along the path, (num_steps + 1,)."""


@checked
def leapfrog(
    log_density: Callable[[Array], Scalar],
    position: Any,
    momentum: Any,
    step_size: Any,
    num_steps: int,
    inverse_mass: Any = 1.0,
) -> Path:
    r"""Path of the leapfrog integrator: half a kick, a drift, half a kick :cite:p:`neal2011hmc`.

    .. math::

        v_{1/2} = v - \tfrac{\epsilon}{2} \nabla U(w), \quad w' = w + \epsilon M^{-1} v_{1/2}, \quad
        v' = v_{1/2} - \tfrac{\epsilon}{2} \nabla U(w')

    It is reversible (with the momentum negated, the path runs back to its start) and preserves volume, as a Metropolis
    step requires. Its energy error is :math:`O(\epsilon^2)`, however long the path. A path that overflows holds NaN.

    Parameters
    ----------
    log_density
        :math:`\log \pi(w)`, up to a constant.
    position, momentum
        Initial w and v, of equal shape.
    step_size
        :math:`\epsilon`.
    num_steps
        Number of steps.
    inverse_mass
        Diagonal of :math:`M^{-1}`: a number, or one per coordinate.

    Examples
    --------
    >>> path = leapfrog(lambda w: -0.5 * w**2, 1.0, 0.0, step_size=0.1, num_steps=200)
    >>> round(float(path.energies[-1]), 3)
    0.499
    """
    return _path(velocity_verlet, log_density, position, momentum, step_size, num_steps, inverse_mass)


@checked
def euler(
    log_density: Callable[[Array], Scalar],
    position: Any,
    momentum: Any,
    step_size: Any,
    num_steps: int,
    inverse_mass: Any = 1.0,
) -> Path:
    r"""Path of the explicit Euler integrator, for comparison: neither reversible nor volume preserving.

    .. math::

        w' = w + \epsilon M^{-1} v, \qquad v' = v - \epsilon \nabla U(w)

    The energy of a harmonic oscillator grows by the factor :math:`1 + \epsilon^2` per step. A Metropolis step does not
    correct it either: the density of its proposals, Jacobian included, differs from that of the way back. A path that
    overflows holds NaN.

    Parameters
    ----------
    log_density, position, momentum, step_size, num_steps, inverse_mass
        As for `leapfrog`.

    Examples
    --------
    >>> path = euler(lambda w: -0.5 * w**2, 1.0, 0.0, step_size=0.1, num_steps=200)
    >>> round(float(path.energies[-1]), 2)
    3.66
    """
    return _path(_explicit, log_density, position, momentum, step_size, num_steps, inverse_mass)


def _explicit(log_density: Callable, kinetic: Callable) -> Callable:
    """Euler's step, in the form of `velocity_verlet`."""

    def one_step(state: IntegratorState, step_size: Any) -> IntegratorState:
        position = state.position + step_size * jax.grad(kinetic)(state.momentum)
        momentum = state.momentum + step_size * state.logdensity_grad
        return new_integrator_state(log_density, position, momentum)

    return one_step


def _path(
    integrator: Callable,
    log_density: Callable,
    position: Any,
    momentum: Any,
    step_size: Any,
    num_steps: int,
    inverse_mass: Any,
) -> Path:
    position, momentum = _real(position, "position"), _real(momentum, "momentum")
    step_size, inverse_mass = _real(step_size, "step_size"), _real(inverse_mass, "inverse_mass")
    _check(log_density, position, momentum, step_size, num_steps, inverse_mass)

    def kinetic(momentum: Array) -> Scalar:
        return 0.5 * jnp.sum(inverse_mass * momentum**2)

    one_step = integrator(log_density, kinetic)

    def step(state: IntegratorState, _: None) -> tuple[IntegratorState, IntegratorState]:
        moved = one_step(state, step_size)
        return moved, moved

    start = new_integrator_state(log_density, position, momentum)
    _, rest = jax.lax.scan(step, start, None, length=num_steps)
    states = jax.tree.map(lambda first, others: jnp.concatenate([first[None], others]), start, rest)
    energies = jax.vmap(kinetic)(states.momentum) - states.logdensity
    return Path(states.position, states.momentum, energies)


def _real(value: Any, name: str) -> Array:
    """A real number or an array of them, in the precision of the path; InputError for anything else."""
    try:
        real = jnp.asarray(value, jnp.result_type(float))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} as real numbers", shown(value), f"Change {name}=.") from error
    if not isinstance(real, jax.core.Tracer) and not jnp.isfinite(real).all():
        raise InputError(f"{name} as finite numbers in {real.dtype}", shown(value), f"Change {name}=.")
    return real


def _check(
    log_density: Callable, position: Array, momentum: Array, step_size: Array, num_steps: int, inverse_mass: Array
) -> None:
    if step_size.shape not in ((), position.shape):
        raise InputError(f"a step size of shape () or {position.shape}", f"{step_size.shape}", "Give a number.")
    if position.shape != momentum.shape:
        raise InputError(f"a momentum of the position's shape {position.shape}", f"{momentum.shape}", "Match them.")
    if inverse_mass.shape not in ((), position.shape):
        expected = f"an inverse mass of shape () or {position.shape}"
        raise InputError(expected, f"{inverse_mass.shape}", "Give a number, or one per coordinate.")
    if not 0 <= num_steps <= MOST:
        raise InputError(f"a whole number of steps from 0 to {MOST:,}", f"{num_steps!r}", "Try 10.")
    if (shape := jax.eval_shape(log_density, position).shape) != ():
        raise InputError("a log density that gives one number", f"shape {shape}", "Sum it over the coordinates.")
