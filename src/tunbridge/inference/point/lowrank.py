"""The posterior of SWAG: normal weights whose covariance has a diagonal and a few directions."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from tunbridge.core import keys
from tunbridge.core.compiling import once
from tunbridge.core.declared import Count, checked
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.posteriors import Symmetric
from tunbridge.runtime import programs


class LowRankGaussian(Symmetric):
    r"""Normal weights :math:`N(\bar w, \text{diag}(v) + F^\top F)`; noise and scales at one value."""

    mean: Params
    variance: PyTree
    """v, of the shape of the weights."""
    factors: PyTree
    """The rows of F, (rank, ...)."""

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        r"""Draw :math:`\bar w + \sqrt v \, z_1 + F^\top z_2`."""
        return _low_rank_draws(self.mean, self.variance, self.factors, keys.split(key, num))

    def one(self) -> Params:
        """Return the mean of the weights."""
        return self.mean


@once
def _low_rank_draws(mean: Params, variance: PyTree, rows: PyTree, draw_keys: Key) -> Params:
    weights, unravel = ravel_pytree(mean.weights)
    scale = jnp.sqrt(ravel_pytree(variance)[0])
    factors = jax.vmap(lambda row: ravel_pytree(row)[0])(rows)

    def draw(key_draw: Key) -> Params:
        key_diagonal, key_rank = jax.random.split(key_draw)
        z_1 = jax.random.normal(key_diagonal, scale.shape, scale.dtype)
        z_2 = jax.random.normal(key_rank, factors.shape[:1], factors.dtype)
        return mean._replace(weights=unravel(weights + scale * z_1 + z_2 @ factors))

    return jax.vmap(draw)(draw_keys)
