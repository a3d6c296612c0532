"""Subsets of weights to treat as random: all, the last layer's, by path, or one by one."""

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
    """A subset of a network's weights to treat as random; all others stay fixed."""

    @abc.abstractmethod
    def chosen(self, weights: PyTree, sites: Sites) -> np.ndarray:
        """Boolean mask over all weights, flattened into one vector."""


class All(Subset):
    """Every weight."""

    def chosen(self, weights: PyTree, sites: Sites) -> np.ndarray:
        """Mask that selects every weight."""
        return np.ones(_size(weights), bool)


class LastLayer(Subset):
    """The weight matrix that the network uses last, with its bias.

    It is identified from the network's traced program, whatever its weights are called.
    """

    def chosen(self, weights: PyTree, sites: Sites) -> np.ndarray:
        """Mask of the weight matrix that is used last; InputError if there is none."""
        if not sites.groups:
            raise InputError(
                "a network that ends in a matrix product",
                "no weight matrix found in its traced program",
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
        One pattern or several, such as ``"layers/1/*"``; `*` matches anything.
    """

    patterns: tuple[str, ...] = eqx.field(static=True, converter=_patterns)

    def chosen(self, weights: PyTree, sites: Sites) -> np.ndarray:
        """Mask of the weights that match; InputError if a pattern matches none."""
        names = paths(weights)
        for pattern in self.patterns:
            if not fnmatch.filter(names, pattern):
                raise InputError(f"a pattern that matches one of {', '.join(names)[:200]}", repr(pattern), "Fix it.")
        keep = [any(fnmatch.fnmatch(name, pattern) for pattern in self.patterns) for name in names]
        sizes = [int(np.prod(leaf.shape)) for _, leaf in flatten_with_paths(weights)]
        return np.repeat(np.array(keep, bool), sizes)


class Mask(Subset):
    """Individually chosen weights: a subnetwork.

    Parameters
    ----------
    mask
        A tree of boolean arrays with the weights' shapes, True where a weight is random.
    """

    numbers: tuple[int, ...] = eqx.field(static=True)
    """Indices of the chosen weights in the flat vector of all weights."""
    size: int = eqx.field(static=True)

    def __init__(self, mask: PyTree = None, *, numbers: Any = None, size: int | None = None):
        if mask is not None:
            leaves = jax.tree.leaves(mask)
            if not leaves or any(str(getattr(leaf, "dtype", "")) != "bool" for leaf in leaves):
                raise InputError("a mask of True and False", shown(mask), "Compare the weights with a threshold.")
            flat = np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves])
            numbers, size = np.flatnonzero(flat), len(flat)
        if numbers is None:
            raise InputError(
                "a mask", "none", "Build it from the weights: jax.tree.map(lambda w: abs(w) > 0.1, weights)."
            )
        self.numbers, self.size = tuple(as_floats(numbers, "numbers").ravel().astype(int).tolist()), int(size or 0)

    def chosen(self, weights: PyTree, sites: Sites) -> np.ndarray:
        """Mask as it was given; InputError if it has another size than the weights or selects none."""
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
