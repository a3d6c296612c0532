"""How far one predictive is from another."""

import jax.numpy as jnp
import numpy as np

from tunbridge.core.types import Predictive

_LEVELS = 200


def wasserstein(predictive: Predictive, other: Predictive) -> float:
    r"""Mean 1-Wasserstein distance of the marginals, :math:`\int_0^1 |F^{-1}(q) - G^{-1}(q)| \, dq`, in units of y.

    By Gauss-Legendre quadrature over the levels q.
    """
    node, weight = np.polynomial.legendre.leggauss(_LEVELS)
    levels = (node + 1) / 2
    gap = jnp.abs(predictive.quantile(levels) - other.quantile(levels))
    return float(jnp.mean(jnp.tensordot(weight / 2, gap, axes=1)))
