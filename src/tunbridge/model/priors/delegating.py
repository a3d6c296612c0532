"""Priors that give each array of weights to one of several others."""

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
    """Arrays of weights under several priors, each of which sees those that are its own, in order.

    Scales are a dictionary by the part's name, of the parts that have any; () if none has.
    """

    @abc.abstractmethod
    def parts(self) -> dict[str, Any]:
        """The priors by name."""

    @abc.abstractmethod
    def assign(self, layout: PyTree) -> list[str]:
        """The name of each array's prior, in the order of the arrays."""

    @abc.abstractmethod
    def with_parts(self, parts: dict[str, Any]) -> Prior:
        """The same with other priors under the same names."""

    @property
    def proper(self) -> bool:
        """Whether all are."""
        return all(prior.proper for prior in self.parts().values())

    @property
    def gaussian(self) -> bool:
        """Whether all are."""
        return all(prior.gaussian for prior in self.parts().values())

    def bind(self, weights: PyTree, layout: PyTree) -> Prior:
        """Each part for its own arrays."""
        parts, own, roles = self.parts(), self._split(weights, layout), self._split(layout, layout)
        return self.with_parts({name: parts[name].bind(own[name], roles[name]) for name in parts})

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Each part's."""
        return self._join(lambda prior, *rest: prior.weights(*rest), raw, scales, layout)

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Each part's."""
        return self._join(lambda prior, *rest: prior.raw(*rest), weights, scales, layout)

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """The sum over parts."""
        return total([prior.log_prob(*rest) for _, prior, *rest in self._each(raw, scales, layout)])

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Each part's."""
        return self._join(lambda prior, *rest: prior.variances(*rest), raw, scales, layout)

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """The sum over parts."""
        parts = self.parts()
        return total([parts[name].log_hyper(own, jacobian=jacobian) for name, own in scales.items()] if scales else [])

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Independent draws of the parts."""
        rows = list(self._each(like, (), layout))
        keys = jax.random.split(key, len(rows))
        drawn = {name: prior.sample(k, own, roles) for k, (name, prior, own, _, roles) in zip(keys, rows, strict=True)}
        raw = self._whole({name: raw for name, (raw, _) in drawn.items()}, like, layout)
        return raw, _present({name: scales for name, (_, scales) in drawn.items()})

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """Each part's."""
        rows = self._each(like, (), layout)
        return _present({name: prior.median_scales(own, roles) for name, prior, own, _, roles in rows})

    def values(self, scales: PyTree) -> PyTree:
        """Each part's, by name."""
        parts = self.parts()
        return {name: parts[name].values(own) for name, own in scales.items()} if scales else ()

    def marginal(self) -> Prior:
        """Each part's."""
        return self.with_parts({name: prior.marginal() for name, prior in self.parts().items()})

    def corners(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree | None:
        """Each part's, 0 where a part is smooth; None if all are."""
        found = {name: prior.corners(*rest) for name, prior, *rest in self._each(raw, scales, layout)}
        if all(part is None for part in found.values()):
            return None
        own = self._split(raw, layout)
        smooth = {name: jax.tree.map(jnp.zeros_like, own[name]) for name in found}
        return self._whole({name: smooth[name] if part is None else part for name, part in found.items()}, raw, layout)

    def _each(self, tree: PyTree, scales: PyTree, layout: PyTree) -> list[tuple[str, Any, PyTree, PyTree, PyTree]]:
        """(name, prior, its arrays, its scales, their roles) of the parts that have any arrays."""
        own, roles = self._split(tree, layout), self._split(layout, layout)
        given = scales or {}
        rows = self.parts().items()
        return [(name, prior, own[name], given.get(name, ()), roles[name]) for name, prior in rows if own[name]]

    def _join(self, method: Callable[..., PyTree], tree: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        found = {name: method(prior, *rest) for name, prior, *rest in self._each(tree, scales, layout)}
        return self._whole(found, tree, layout)

    def _split(self, tree: PyTree, layout: PyTree) -> dict[str, OrderedDict[str, Any]]:
        """The arrays of each part by path."""
        owners = self.assign(layout)
        found: dict[str, OrderedDict[str, Any]] = {name: OrderedDict() for name in self.parts()}
        for owner, (path, leaf) in zip(owners, flatten_with_paths(tree), strict=True):
            found[owner][path] = leaf
        return found

    def _whole(self, found: dict[str, PyTree], like: PyTree, layout: PyTree) -> PyTree:
        """The inverse of `_split`."""
        rows = zip(self.assign(layout), flatten_with_paths(like), strict=True)
        return jax.tree.unflatten(jax.tree.structure(like), [found[owner][path] for owner, (path, _) in rows])


def _present(scales: dict[str, PyTree]) -> PyTree:
    return {name: own for name, own in scales.items() if own} or ()
