"""How a step size changes along a run: factors of the first one."""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

__all__ = ["Constant", "Cosine"]


class Constant(eqx.Module):
    """The same step size throughout."""

    def __call__(self, fraction: Array) -> Array:
        """1, whatever the fraction of the run that is done."""
        return jnp.ones_like(fraction)


class Cosine(eqx.Module):
    r"""From 1 to 0 as :math:`\frac12 (1 + \cos \pi u)` :cite:p:`loshchilov2017sgdr`."""

    def __call__(self, fraction: Array) -> Array:
        """The factor at a fraction u of the run."""
        return 0.5 * (1.0 + jnp.cos(jnp.pi * fraction))
