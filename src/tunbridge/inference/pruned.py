"""A posterior some of whose weights are gone: exactly 0 in every draw."""

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.declared import Count, checked
from tunbridge.core.tree import size
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.posteriors import Posterior


class Pruned(Posterior):
    """A posterior with some weights at 0 and certain of it; all others are as they were.

    What `tunbridge.applications.compression` makes.

    Parameters
    ----------
    posterior
        With all weights.
    kept
        A tree of the shapes of the weights, False where a weight is 0.
    """

    posterior: Posterior
    kept: PyTree

    @checked
    def sample(self, key: Key, num: Count) -> Params:
        """Draws of the posterior, without the weights that are gone."""
        return jax.vmap(self._without)(self.posterior.sample(key, num))

    def components(self, key: Key, num: int | None) -> Params:
        """Those of the posterior, without the weights that are gone."""
        return jax.vmap(self._without)(self.posterior.components(key, num))

    def one(self) -> Params:
        """That of the posterior, without the weights that are gone."""
        return self._without(self.posterior.one())

    @property
    def num_weights(self) -> int:
        """How many there were."""
        return size(self.kept)

    @property
    def num_kept(self) -> int:
        """How many are left."""
        return sum(int(np.count_nonzero(leaf)) for leaf in jax.tree.leaves(self.kept))

    def _without(self, params: Params) -> Params:
        kept = jax.tree.map(lambda keep, leaf: jnp.where(keep, leaf, jnp.zeros_like(leaf)), self.kept, params.weights)
        return params._replace(weights=kept)
