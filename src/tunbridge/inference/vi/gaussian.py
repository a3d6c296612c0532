r"""Normal q over everything unknown: a mean, and independent groups of deviations of various structures.

A draw is :math:`\mu + R \varepsilon` with standard normal :math:`\varepsilon` and a root R of the covariance, block by
block. The arrays are the variational parameters: an optimiser moves them, and nothing else.
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
    """A normal distribution over everything unknown."""

    mean: Params
    spreads: tuple[Spread, ...]
    groups: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """Which leaves of the mean each spread is of: one as it is, several in one vector. All others are points."""

    def noise(self, key: Key) -> tuple[PyTree, ...]:
        """Standard normal numbers for one draw."""
        keys = split(key, len(self.spreads))
        return tuple(spread.noise(one) for spread, one in zip(self.spreads, keys, strict=True))

    def deviations(self, noise: tuple[PyTree, ...]) -> Params:
        """What these numbers add to the mean."""
        return self._tree([spread.root(one) for spread, one in zip(self.spreads, noise, strict=True)])

    def place(self, noise: tuple[PyTree, ...]) -> Params:
        """The draw that these numbers make."""
        return jax.tree.map(jnp.add, self.mean, self.deviations(noise))

    def split(self, noise: tuple[PyTree, ...]) -> tuple[Params, Params]:
        """The mean with the part of a draw that is not independent between numbers; standard deviations of the rest."""
        common = self._tree([spread.common(one) for spread, one in zip(self.spreads, noise, strict=True)])
        return jax.tree.map(jnp.add, self.mean, common), self._tree([spread.own() for spread in self.spreads])

    def sample(self, key: Key) -> Params:
        """A draw."""
        return self.place(self.noise(key))

    def log_prob(self, params: Params) -> Scalar:
        """The log density of everything at once."""
        leaves = jax.tree.leaves(jax.tree.map(jnp.subtract, params, self.mean))

        def one(spread: Spread, group: tuple[int, ...]) -> Scalar:
            parts = [leaves[number] for number in group]
            return spread.log_prob(jnp.concatenate([part.ravel() for part in parts]) if spread.flat else parts[0])

        return _total(map(one, self.spreads, self.groups))

    def entropy(self) -> Scalar:
        """Minus the expected log density."""
        return _total(spread.entropy() for spread in self.spreads)

    def variance(self) -> Params:
        """Of each number."""
        return self._tree([spread.variance() for spread in self.spreads])

    @property
    def num_parameters(self) -> int:
        """How many numbers describe it."""
        return size(self.mean) + sum(spread.num_parameters for spread in self.spreads)

    def _tree(self, values: list[Array]) -> Params:
        """Arrays of the spreads as a tree of the shapes of the mean."""
        leaves, structure = jax.tree.flatten(self.mean)
        found = [jnp.zeros_like(leaf) for leaf in leaves]
        for value, spread, group in zip(values, self.spreads, self.groups, strict=True):
            start = 0
            for number in group:
                width = leaves[number].size
                part = value[start : start + width].reshape(leaves[number].shape) if spread.flat else value
                found[number] = part.astype(leaves[number].dtype)
                start += width
        return jax.tree.unflatten(structure, found)


def _total(terms: Iterable[Scalar]) -> Scalar:
    return sum(terms, start=jnp.zeros(()))
