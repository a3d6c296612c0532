"""Which weights are random: all, those of the last layer, some by path, some one by one."""

import abc
import fnmatch
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from tunbridge.core.declared import Module, as_floats, shown
from tunbridge.core.errors import InputError
from tunbridge.core.tree import flatten_with_paths, paths
from tunbridge.core.types import PyTree
from tunbridge.model.networks.programs.sites import Sites


class Subset(Module):
    """A choice among a network's weights; all others stay where they are."""

    @abc.abstractmethod
    def chosen(self, weights: PyTree, sites: Sites) -> np.ndarray:
        """Which weights, as a mask over all of them in one vector."""


class All(Subset):
    """Every weight."""

    def chosen(self, weights: PyTree, sites: Sites) -> np.ndarray:
        """All."""
        return np.ones(_size(weights), bool)


class LastLayer(Subset):
    """The matrix of weights that the network uses last, with its bias.

    It is found from the network's program, whatever its weights are called.
    """

    def chosen(self, weights: PyTree, sites: Sites) -> np.ndarray:
        """The last group."""
        if not sites.groups:
            raise InputError(
                "a network that ends in a matrix product",
                "one without a matrix of weights of its own",
                "Name the weights with subsets.Paths, or take subsets.All().",
            )
        last = max(sites.groups, key=lambda group: group.places[-1])
        mask = np.zeros(_size(weights), bool)
        mask[last.index] = True
        return mask


def _patterns(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


class Paths(Subset):
    """Weights whose paths match a pattern.

    Parameters
    ----------
    patterns
        As ``"layers/1/*"``, one or several; `*` stands for anything.
    """

    patterns: tuple[str, ...] = eqx.field(static=True, converter=_patterns)

    def chosen(self, weights: PyTree, sites: Sites) -> np.ndarray:
        """Those that match; InputError if a pattern matches none."""
        names = paths(weights)
        for pattern in self.patterns:
            if not fnmatch.filter(names, pattern):
                raise InputError(f"a pattern that matches one of {', '.join(names)[:200]}", repr(pattern), "Mend it.")
        keep = [any(fnmatch.fnmatch(name, pattern) for pattern in self.patterns) for name in names]
        sizes = [int(np.prod(leaf.shape)) for _, leaf in flatten_with_paths(weights)]
        return np.repeat(np.array(keep, bool), sizes)


class Mask(Subset):
    """Weights one by one: a subnetwork.

    Parameters
    ----------
    mask
        A tree of the shapes of the weights, True where a weight is random.
    """

    numbers: tuple[int, ...] = eqx.field(static=True)
    """Which weights, counted over all of them in one vector."""
    size: int = eqx.field(static=True)

    def __init__(self, mask: PyTree = None, *, numbers: Any = None, size: int | None = None):
        if mask is not None:
            leaves = jax.tree.leaves(mask)
            if not leaves or any(np.dtype(getattr(leaf, "dtype", object)) != bool for leaf in leaves):
                raise InputError("a mask of True and False", shown(mask), "Compare the weights with a threshold.")
            flat = np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves])
            numbers, size = np.flatnonzero(flat), len(flat)
        if numbers is None:
            raise InputError(
                "a mask", "none", "Build it from the weights: jax.tree.map(lambda w: abs(w) > 0.1, weights)."
            )
        self.numbers, self.size = tuple(as_floats(numbers, "numbers").ravel().astype(int).tolist()), int(size or 0)

    def chosen(self, weights: PyTree, sites: Sites) -> np.ndarray:
        """As said."""
        num = _size(weights)
        if self.size != num or not self.numbers:
            raise InputError(
                f"a mask of {num} weights with some True",
                f"{self.size} with {len(self.numbers)} True",
                "Build it from the weights: jax.tree.map(lambda w: abs(w) > 0.1, weights).",
            )
        mask = np.zeros(num, bool)
        mask[list(self.numbers)] = True
        return mask


def _size(weights: PyTree) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(weights))
