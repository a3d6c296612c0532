"""Independent normal weights: one scale, one per layer, scaled by fan-in, known or unknown."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.model.priors.base import NORMAL, Independent, as_scale


class Normal(Independent):
    r"""Independent normal weights, :math:`w \sim N(0, s^2)`.

    An unknown scale makes the prior hierarchical and its coordinates non-centred,
    :math:`w = s \, r,\; r \sim N(0, 1)`, so that samplers meet no funnel :cite:p:`betancourt2015hierarchical`.

    Parameters
    ----------
    scale
        The standard deviation *s*: a number, a numpyro distribution if it is unknown, `fan_in` of either, or a
        sequence of these, one per layer in the network's order.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> from tunbridge import priors
    >>> one, wide = priors.Normal(1.0), priors.Normal(priors.fan_in(1.0))
    >>> unknown, by_layer = priors.Normal(priors.fan_in(dist.HalfNormal(1.0))), priors.Normal((1.0, 0.5))
    """

    scale: Any = eqx.field(default=1.0, converter=as_scale)

    @property
    def gaussian(self) -> bool:
        """True, as raw coordinates are normal."""
        return True

    def law(self) -> Distribution:
        """The standard normal distribution."""
        return NORMAL

    def em_variance(self, r: Array) -> Array:
        """Return 1, the variance of a standard normal."""
        return jnp.ones_like(r)
