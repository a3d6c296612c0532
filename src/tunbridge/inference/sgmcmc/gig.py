r"""Draws from the generalised inverse Gaussian distribution, by exact rejection :cite:p:`devroye2014random`.

Their density is :math:`u^{p-1} e^{-(\psi u + \chi / u) / 2}`. With :math:`\omega = \sqrt{\psi\chi}` and
:math:`\alpha = \sqrt{\omega^2 + p^2} - p`, for p >= 0, the logarithm x of u in units of the mode
:math:`(p + \sqrt{\omega^2 + p^2}) / \psi` has the log density

.. math::

    g(x) = -\alpha (\cosh x - 1) - p (e^x - 1 - x),

which is concave with its maximum at 0. For p < 0, 1 / u is drawn, with the sign of p changed and psi and chi exchanged.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.types import Key


def sample(key: Key, power: Any, psi: Array, chi: Array) -> Array:
    """One draw for each psi and chi, arrays of equal shape; NaN where these are not positive and finite.

    Parameters
    ----------
    key
        A random key.
    power
        p: a number, or one per psi.
    psi, chi
        Coefficients of u and 1 / u.

    Examples
    --------
    >>> psi = jnp.array([1e-8, 1.0, 1e8])
    >>> bool((sample(jax.random.key(0), 0.5, psi, psi[::-1]) > 0).all())
    True
    """
    power = jnp.broadcast_to(jnp.asarray(power, psi.dtype), psi.shape)
    p = jnp.abs(power)
    known = (psi > 0) & (chi > 0) & jnp.isfinite(psi) & jnp.isfinite(chi)
    psi, chi = jnp.where(known, psi, 1.0), jnp.where(known, chi, 1.0)
    omega = jnp.sqrt(psi) * jnp.sqrt(chi)
    root = jnp.hypot(p, omega)
    alpha = omega * (omega / (root + p))
    above = (root + p) * jnp.exp(_from_the_mode(key, p, alpha, known))
    return jnp.where(known, jnp.where(power < 0, chi / above, above / psi), jnp.nan)


def _from_the_mode(key: Key, p: Array, alpha: Array, needed: Array) -> Array:
    """Draws from the log density g where `needed`, 0 elsewhere."""

    def log_density(x: Array) -> Array:
        return -2.0 * alpha * jnp.sinh(0.5 * x) ** 2 - p * (jnp.expm1(x) - x)

    def derivative(x: Array) -> Array:
        return -alpha * jnp.sinh(x) - p * jnp.expm1(x)

    propose = _hat(log_density, derivative, *_shoulders(p, alpha))

    def iteration(state: tuple[Key, Array, Array]) -> tuple[Key, Array, Array]:
        key, x, missing = state
        key, key_now = jax.random.split(key)
        new, accepted = propose(key_now)
        return key, jnp.where(missing & accepted, new, x), missing & ~accepted

    return jax.lax.while_loop(lambda state: jnp.any(state[2]), iteration, (key, jnp.zeros_like(alpha), needed))[1]


def _shoulders(p: Array, alpha: Array) -> tuple[Array, Array]:
    """Distances left and right of the mode at which g is about -1.

    There one term of g is -1 (the second to within a fifth), and the other at least -1.
    """
    y = 1.0 / p
    first = jnp.log1p((1.0 + jnp.sqrt(1.0 + 2.0 * alpha)) / alpha)
    left, right = 0.5 * (y + jnp.sqrt(y * (y + 8.0))), jnp.log1p(y + jnp.sqrt(2.0 * y))
    return jnp.minimum(first, left), jnp.minimum(first, right)


def _hat(
    log_density: Callable[[Array], Array], derivative: Callable[[Array], Array], left: Array, right: Array
) -> Callable[[Key], tuple[Array, Array]]:
    """Function that draws proposals under the maximum and two tangents of a concave log density, and accepts or not.

    Rejection is exact wherever the tangents touch; here they touch at -left and right.
    """
    fall, rise = -1.0 / derivative(right), 1.0 / derivative(-left)
    end, start = right + fall * log_density(right), -left - rise * log_density(-left)
    level = end - start

    def propose(key: Key) -> tuple[Array, Array]:
        place, *others = jax.random.uniform(key, (3, *level.shape), level.dtype)
        excess, height = (-jnp.log1p(-u) for u in others)
        place = (level + fall + rise) * place
        tail = jnp.where(place < level + fall, end + fall * excess, start - rise * excess)
        x = jnp.where(place < level, start + place, tail)
        return x, log_density(x) >= -height - jnp.where(place < level, 0.0, excess)

    return propose
