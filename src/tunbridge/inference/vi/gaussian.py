r"""Normal q over all unknowns: a mean, and independent groups of deviations with various covariance structures.

A draw is :math:`\mu + R \varepsilon` with standard normal :math:`\varepsilon` and a root R of the covariance, block by
block. The arrays are the variational parameters, exactly those that an optimiser updates.
"""

from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.random import split
from tunbridge.core.tree import size
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.inference.vi.spreads import Spread


class Gaussian(Module):
    """A normal distribution over all unknowns."""

    mean: Params
    spreads: tuple[Spread, ...]
    groups: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """Leaves of the mean that each spread covers: one as it is, or several in one vector. All others have no spread."""

    def noise(self, key: Key) -> tuple[PyTree, ...]:
        """Standard normal noise for one draw."""
        keys = split(key, len(self.spreads))
        return tuple(spread.noise(key_spread) for spread, key_spread in zip(self.spreads, keys, strict=True))

    def deviations(self, noise: tuple[PyTree, ...]) -> Params:
        """Deviation from the mean that this noise gives."""
        return self._tree([spread.root(epsilon) for spread, epsilon in zip(self.spreads, noise, strict=True)])

    def place(self, noise: tuple[PyTree, ...]) -> Params:
        """Draw that this noise gives."""
        return jax.tree.map(jnp.add, self.mean, self.deviations(noise))

    def split(self, noise: tuple[PyTree, ...]) -> tuple[Params, Params]:
        """Mean plus the correlated part of a draw, and the standard deviations of the independent rest."""
        common = self._tree([spread.common(epsilon) for spread, epsilon in zip(self.spreads, noise, strict=True)])
        return jax.tree.map(jnp.add, self.mean, common), self._tree([spread.own() for spread in self.spreads])

    def sample(self, key: Key) -> Params:
        """Draw all unknowns."""
        return self.place(self.noise(key))

    def log_prob(self, params: Params) -> Scalar:
        """Joint log density of all unknowns."""
        leaves = jax.tree.leaves(jax.tree.map(jnp.subtract, params, self.mean))

        def group_log_prob(spread: Spread, group: tuple[int, ...]) -> Scalar:
            parts = [leaves[number] for number in group]
            return spread.log_prob(jnp.concatenate([part.ravel() for part in parts]) if spread.flat else parts[0])

        return _total(map(group_log_prob, self.spreads, self.groups))

    def entropy(self) -> Scalar:
        """Entropy: minus the expected log density."""
        return _total(spread.entropy() for spread in self.spreads)

    def variance(self) -> Params:
        """Marginal variance of each unknown."""
        return self._tree([spread.variance() for spread in self.spreads])

    @property
    def num_parameters(self) -> int:
        """Number of variational parameters."""
        return size(self.mean) + sum(spread.num_parameters for spread in self.spreads)

    def _tree(self, values: list[Array]) -> Params:
        """Arrays of the spreads as a tree with the shapes of the mean, 0 where there is no spread."""
        leaves, structure = jax.tree.flatten(self.mean)
        arrays = [jnp.zeros_like(leaf) for leaf in leaves]
        for value, spread, group in zip(values, self.spreads, self.groups, strict=True):
            start = 0
            for number in group:
                width = leaves[number].size
                part = value[start : start + width].reshape(leaves[number].shape) if spread.flat else value
                arrays[number] = part.astype(leaves[number].dtype)
                start += width
        return jax.tree.unflatten(structure, arrays)


def _total(terms: Iterable[Scalar]) -> Scalar:
    return sum(terms, start=jnp.zeros(()))
