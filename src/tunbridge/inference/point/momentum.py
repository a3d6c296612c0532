r"""Momentum as damped motion: a mass in the potential U, slowed by friction :cite:p:`qian1999momentum`.

.. math::

    m \ddot x = -\nabla U(x) - \beta \dot x

Time advances in steps of dt, with the force at the current position and the friction at the next velocity,

.. math::

    m \frac{v_{t+1} - v_t}{dt} = -\nabla U(x_t) - \beta v_{t+1}, \qquad x_{t+1} = x_t + dt\, v_{t+1},

which is ``optax.sgd(step_size, momentum)``: :math:`x_{t+1} - x_t = b\, (x_t - x_{t-1}) - \eta \nabla U(x_t)`.
"""

import math

from tunbridge.core.declared import checked
from tunbridge.core.errors import InputError


@checked
def momentum_from_physics(mass: float, damping: float, time_step: float) -> tuple[float, float]:
    r"""Return (step size, momentum) of the SGD that moves like this damped mass.

    .. math::

        \eta = \frac{dt^2}{m + \beta\, dt}, \qquad b = \frac{m}{m + \beta\, dt}

    Without mass this is gradient descent; without damping, energy is conserved.

    Examples
    --------
    >>> momentum_from_physics(mass=2.0, damping=2.0, time_step=1.0)
    (0.25, 0.5)
    """
    for name, value in (("mass", mass), ("damping", damping)):
        if not 0.0 <= value < math.inf:
            raise InputError(f"a {name} of at least 0", f"{value}", "Try 1.0.")
    _check_positive("time step", time_step)
    if mass == 0.0 and damping == 0.0:
        raise InputError("mass or damping above 0", "neither", "Try mass=1.0: nothing else resists the force.")
    resistance = mass + damping * time_step
    return time_step**2 / resistance, mass / resistance


@checked
def physics_from_momentum(step_size: float, momentum: float, time_step: float) -> tuple[float, float]:
    r"""Return (mass, damping) of the damped mass that moves like SGD with momentum.

    .. math::

        m = \frac{b\, dt^2}{\eta}, \qquad \beta = \frac{(1 - b)\, dt}{\eta}

    Two parameters do not determine three: the time step is a free choice of the unit of time.

    Examples
    --------
    >>> physics_from_momentum(step_size=0.25, momentum=0.5, time_step=1.0)
    (2.0, 2.0)
    """
    _check_positive("step size", step_size)
    _check_positive("time step", time_step)
    if not 0.0 <= momentum <= 1.0:
        raise InputError("a momentum from 0 to 1", f"{momentum}", "Try 0.9.")
    return momentum * time_step**2 / step_size, (1.0 - momentum) * time_step / step_size


def _check_positive(name: str, value: float) -> None:
    if not (value > 0.0 and math.isfinite(float(value) * float(value))):
        raise InputError(f"a {name} above 0, with a finite square", f"{value}", "Try 0.1.")
