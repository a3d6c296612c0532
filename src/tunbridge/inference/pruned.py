"""A posterior with some weights pruned: exactly 0 in every draw."""

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.declared import Count, checked
from tunbridge.core.tree import size
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.posteriors import Posterior
from tunbridge.runtime import programs


class Pruned(Posterior):
    """A posterior with some weights set to exactly 0 in every draw; the others are unchanged.

    Made by `tunbridge.applications.compression`.

    Parameters
    ----------
    posterior
        The posterior before pruning.
    kept
        A tree of the shapes of the weights, False where a weight is pruned.
    """

    posterior: Posterior
    kept: PyTree

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Draw from the posterior, with pruned weights at 0."""
        return jax.vmap(self._without)(self.posterior.sample(key, num))

    def components(self, key: Key, num: int | None) -> Params:
        """Return the components of the posterior, with pruned weights at 0."""
        return jax.vmap(self._without)(self.posterior.components(key, num))

    def one(self) -> Params:
        """Return a single network of the posterior, with pruned weights at 0."""
        return self._without(self.posterior.one())

    @property
    def num_weights(self) -> int:
        """Number of weights before pruning."""
        return size(self.kept)

    @property
    def num_kept(self) -> int:
        """Number of weights that were kept."""
        return sum(int(np.count_nonzero(leaf)) for leaf in jax.tree.leaves(self.kept))

    def _without(self, params: Params) -> Params:
        weights = jax.tree.map(
            lambda keep, leaf: jnp.where(keep, leaf, jnp.zeros_like(leaf)), self.kept, params.weights
        )
        return params._replace(weights=weights)
