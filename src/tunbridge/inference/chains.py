"""Draws of Markov chains: a posterior that remembers which chain said what, and how each step went."""

import jax
import numpy as np
from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params
from tunbridge.inference.posteriors import Posterior


class Chains(Posterior):
    """Draws of several chains, with leading axes (chains, draws).

    Parameters
    ----------
    params
        The draws.
    stats
        The statistics of the kept steps by name, (chains, draws) each: ``log_density``, ``acceptance``, ``divergent``,
        ``energy``, ``gradients``, as far as the sampler has them.
    inputs
        Some rows of x, (points, ...features), at which convergence of functions is judged.
    """

    params: Params
    stats: dict[str, Array]
    inputs: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(chains, draws)."""
        chains, draws = jax.tree.leaves(self.params)[0].shape[:2]
        return chains, draws

    def sample(self, key: Key, num: int) -> Params:
        """`num` draws at random, with replacement."""
        chosen = jax.random.randint(key, (num,), 0, int(np.prod(self.shape)))
        return jax.tree.map(lambda leaf: leaf[chosen], self._flat())

    def starts(self, key: Key, num: int) -> Params:
        """The last draw of each chain in turn, noise included."""
        last = jax.tree.map(lambda leaf: leaf[:, -1], self.params)
        return jax.tree.map(lambda leaf: leaf[np.arange(num) % self.shape[0]], last)

    def components(self, key: Key, num: int | None) -> Params:
        """All draws, chain after chain, or `num` evenly spaced."""
        total = int(np.prod(self.shape))
        if num is None:
            return self._flat()
        if not 1 <= num <= total:
            raise InputError(f"num from 1 to the {total} draws kept", f"{num}", "Ask for fewer, or sample more.")
        chosen = np.linspace(0, total - 1, num).round().astype(int)
        return jax.tree.map(lambda leaf: leaf[chosen], self._flat())

    def _flat(self) -> Params:
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.params)
