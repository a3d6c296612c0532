"""How far one predictive is from another."""

import jax.numpy as jnp

from tunbridge.core.quadrature import panels
from tunbridge.core.types import Predictive


def wasserstein(predictive: Predictive, other: Predictive) -> float:
    r"""Mean 1-Wasserstein distance of the marginals, :math:`\int_0^1 |F^{-1}(q) - G^{-1}(q)| \, dq`, in units of y.

    By Gauss-Legendre quadrature over the levels q.
    """
    levels, weight = panels()
    gap = jnp.abs(predictive.quantile(levels) - other.quantile(levels))
    return float(jnp.mean(jnp.tensordot(weight, gap, axes=1)))
