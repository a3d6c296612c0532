r"""How much of the gradient's noise heats a chain whose epochs visit each row once.

The noise of the K batches of an epoch sums to 0: its autocovariance at lag k is that of white noise less
:math:`(K - k) / K^2`. A direction of curvature :math:`\lambda` that forgets in many epochs averages it away, one that
swings within an epoch does not. With the autocorrelation :math:`\rho_k` of the direction under white noise, the share

.. math::

    \frac{K}{K - 1} \Big( 1 - \frac{1}{K^2} \sum_{|k| < K} (K - |k|) \rho_k \Big)

of the noise's variance heats it, exactly for a normal posterior. Here :math:`\rho` belongs to the recursion
:math:`w_{t+1} = (2 - \alpha - \eta \lambda) w_t - (1 - \alpha) w_{t-1} + \text{noise}` of `tunbridge.SGHMC`, with
friction :math:`\alpha` and step size :math:`\eta`, or to its increments, the momentum.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_HALVINGS = 32
"""Steps of a factor sqrt(2) from the largest stiffness downwards."""
_LONGEST = 10_000
"""Batches of an epoch above which its noise counts as independent."""


class Cancellation(NamedTuple):
    """What an epoch's cancelling leaves of the gradient's noise."""

    momentum: float = 1.0
    """Share that heats the momentum of a free direction."""
    fractions: NDArray[np.float64] = np.ones(1)
    """Falling fractions of the largest step size times curvature."""
    shares: NDArray[np.float64] = np.ones(1)
    """Share that heats any direction that is no stiffer than this fraction."""


def cancellation(friction: float, epoch: int, stiffest: float) -> Cancellation:
    """Return the shares for step sizes times curvature up to `stiffest`, with `epoch` batches per epoch.

    Without momentum (friction 1) only positions count, otherwise positions and momentum.
    """
    fractions: NDArray[np.float64] = np.power(2.0, -0.5 * np.arange(_HALVINGS))
    positions, momenta = np.transpose([shares(friction, epoch, stiffest * fraction) for fraction in fractions])
    heated = positions if friction == 1.0 else np.maximum(positions, momenta)
    rising = np.maximum.accumulate(heated[::-1])[::-1]
    return Cancellation(shares(friction, epoch, 0.0)[1], fractions, rising)


def shares(friction: float, epoch: int, stiffness: float) -> tuple[float, float]:
    """Shares of the noise's variance that heat position and momentum, for a step size times curvature of `stiffness`.

    Examples
    --------
    >>> shares(1.0, 50, 0.0)[1], round(shares(0.01, 10, 0.0)[1], 3)
    (1.0, 0.036)
    """
    if not 2 <= epoch <= _LONGEST:
        return 1.0, 1.0
    lags = np.arange(epoch)
    position = _position(friction, stiffness, epoch + 1)
    if stiffness == 0.0:  # a free direction: its position forgets nothing, its momentum loses its share per step
        momentum = (1.0 - friction) ** lags
    else:
        before = np.abs(lags - 1)
        momentum = 2.0 * position[lags] - position[before] - position[lags + 1]
        momentum = momentum / momentum[0]
    pairs = np.where(lags == 0, 1.0, 2.0) * (epoch - lags)
    found = [epoch / (epoch - 1) * (1.0 - pairs @ rho / epoch**2) for rho in (position[:epoch], momentum)]
    return max(float(found[0]), 0.0), float(found[1])


def _position(friction: float, stiffness: float, num: int) -> NDArray[np.float64]:
    """Autocorrelation of positions under white noise, at the lags 0, ..., num - 1: a sum of two powers."""
    once, twice = 2.0 - friction - stiffness, friction - 1.0
    root = np.sqrt(once**2 + 4.0 * twice + 1e-12j)  # of the recursion's characteristic equation; never 0
    larger, smaller = (once + root) / 2.0, (once - root) / 2.0
    weight = (once / (1.0 - twice) - smaller) / root
    lags = np.arange(num)
    return (weight * larger**lags + (1.0 - weight) * smaller**lags).real
