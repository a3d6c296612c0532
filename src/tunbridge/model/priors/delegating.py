"""Priors that assign each array of weights to one of several other priors."""

import abc
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import Key, Prior, PyTree, Scalar
from tunbridge.model.priors.base import AbstractPrior, total


class Delegating(AbstractPrior):
    """Arrays of weights under several priors (parts), each of which sees only its own arrays, in order.

    Scales are a dictionary by name of the parts that have any; () if none has.
    """

    @abc.abstractmethod
    def parts(self) -> dict[str, Any]:
        """The parts: priors by name."""

    @abc.abstractmethod
    def assign(self, layout: PyTree) -> list[str]:
        """Name of each array's part, in the order of the arrays."""

    @abc.abstractmethod
    def with_parts(self, parts: dict[str, Any]) -> Prior:
        """Return the same prior with other parts under the same names."""

    @property
    def proper(self) -> bool:
        """Whether all parts are proper."""
        return all(prior.proper for prior in self.parts().values())

    @property
    def gaussian(self) -> bool:
        """Whether the raw coordinates of all parts are normal."""
        return all(prior.gaussian for prior in self.parts().values())

    @property
    def discrete(self) -> bool:
        """Whether any part has an unknown whole number."""
        return any(prior.discrete for prior in self.parts().values())

    def bind(self, weights: PyTree, layout: PyTree) -> Prior:
        """Return the prior with each part bound to its own arrays."""
        parts, arrays, roles = self.parts(), self._split(weights, layout), self._split(layout, layout)
        return self.with_parts({name: parts[name].bind(arrays[name], roles[name]) for name in parts})

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Weights, each array from its own part."""
        return self._join(lambda prior, *args: prior.weights(*args), raw, scales, layout)

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Raw coordinates, each array from its own part."""
        return self._join(lambda prior, *args: prior.raw(*args), weights, scales, layout)

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of raw coordinates: the sum over parts."""
        return total([prior.log_prob(*args) for _, prior, *args in self._each(raw, scales, layout)])

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Variance of each weight, from its own part; InputError if a part has none."""
        return self._join(lambda prior, *args: prior.variances(*args), raw, scales, layout)

    def log_heights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Log density of each weight relative to its normal's peak, by its own part; InputError if a part has none."""
        return self._join(lambda prior, *args: prior.log_heights(*args), raw, scales, layout)

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log prior density of the unknown scales: the sum over parts."""
        parts = self.parts()
        return total(
            [parts[name].log_hyper(part_scales, jacobian=jacobian) for name, part_scales in scales.items()]
            if scales
            else []
        )

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (raw, scales), independently for each part."""
        rows = list(self._each(like, (), layout))
        keys = jax.random.split(key, len(rows))
        drawn = {
            name: prior.sample(k, arrays, roles) for k, (name, prior, arrays, _, roles) in zip(keys, rows, strict=True)
        }
        raw = self._whole({name: raw for name, (raw, _) in drawn.items()}, like, layout)
        return raw, _present({name: scales for name, (_, scales) in drawn.items()})

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """The unknown scales of each part at the medians of their priors."""
        rows = self._each(like, (), layout)
        return _present({name: prior.median_scales(arrays, roles) for name, prior, arrays, _, roles in rows})

    def values(self, scales: PyTree) -> PyTree:
        """Values of the unknown scales, by name of the part."""
        parts = self.parts()
        return {name: parts[name].values(part_scales) for name, part_scales in scales.items()} if scales else ()

    def marginal(self) -> Prior:
        """Return the prior with scales integrated out in each part that has a closed form."""
        return self.with_parts({name: prior.marginal() for name, prior in self.parts().items()})

    def corners(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree | None:
        """Corners of each part, 0 where a part is smooth; None if all are."""
        corners = {name: prior.corners(*args) for name, prior, *args in self._each(raw, scales, layout)}
        if all(part is None for part in corners.values()):
            return None
        arrays = self._split(raw, layout)
        smooth = {name: jax.tree.map(jnp.zeros_like, arrays[name]) for name in corners}
        return self._whole(
            {name: smooth[name] if part is None else part for name, part in corners.items()}, raw, layout
        )

    def _each(self, tree: PyTree, scales: PyTree, layout: PyTree) -> list[tuple[str, Any, PyTree, PyTree, PyTree]]:
        """(name, prior, arrays, scales, roles) of each part that has any arrays."""
        arrays, roles = self._split(tree, layout), self._split(layout, layout)
        given = scales or {}
        rows = self.parts().items()
        return [(name, prior, arrays[name], given.get(name, ()), roles[name]) for name, prior in rows if arrays[name]]

    def _join(self, method: Callable[..., PyTree], tree: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        trees = {name: method(prior, *args) for name, prior, *args in self._each(tree, scales, layout)}
        return self._whole(trees, tree, layout)

    def _split(self, tree: PyTree, layout: PyTree) -> dict[str, OrderedDict[str, Any]]:
        """The arrays of each part by path."""
        owners = self.assign(layout)
        arrays: dict[str, OrderedDict[str, Any]] = {name: OrderedDict() for name in self.parts()}
        for owner, (path, leaf) in zip(owners, flatten_with_paths(tree), strict=True):
            arrays[owner][path] = leaf
        return arrays

    def _whole(self, trees: dict[str, PyTree], like: PyTree, layout: PyTree) -> PyTree:
        """The inverse of `_split`."""
        rows = zip(self.assign(layout), flatten_with_paths(like), strict=True)
        return jax.tree.unflatten(jax.tree.structure(like), [trees[owner][path] for owner, (path, _) in rows])


def _present(scales: dict[str, PyTree]) -> PyTree:
    return {name: part_scales for name, part_scales in scales.items() if part_scales} or ()
