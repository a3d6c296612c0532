r"""Unbiased estimates of the gradient of the log posterior from a batch of rows."""

import abc
import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.declared import Count, Module
from tunbridge.core.tree import ravel, unravel
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.point.map import MAP
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.sampler import shapes
from tunbridge.inference.sgmcmc.everything import Everything
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Options

__all__ = ["SVRG", "ControlVariate", "Estimator", "Plain", "Slope"]


class Slope(NamedTuple):
    """An estimate."""

    log_density: Array
    gradient: Array
    """With respect to all unknowns in one vector."""


class Estimator(Module):
    """How a batch is turned into a gradient."""

    def settled(self, model: Model, data: Data | Stream, epoch: int, key: Key, options: Options) -> "Estimator":
        """The estimator with what it needs of all rows, bound to the model, of which `epoch` batches are an epoch."""
        return self

    def begin(self, target: Target, position: Array) -> PyTree:
        """What it remembers before the first step."""
        return ()

    def follow(self, target: Target, memory: PyTree, position: Array, step: Array) -> PyTree:
        """What it remembers before a step."""
        return memory

    @abc.abstractmethod
    def slope(self, target: Target, memory: PyTree, position: Array, batch: Data) -> Slope:
        """The estimate."""


def _slope(target: Target, position: Array, batch: Data) -> Slope:
    value, gradient = jax.value_and_grad(target.log_density)(unravel(shapes(target.model), position), batch)
    return Slope(value, ravel(gradient))


def _likelihood_slope(target: Target, position: Array, batch: Data) -> Slope:
    def tempered(params: Params) -> Array:
        return target.log_likelihood(params, batch) / target.temperature

    value, gradient = jax.value_and_grad(tempered)(unravel(shapes(target.model), position))
    return Slope(value, ravel(gradient))


class Plain(Estimator):
    r""":math:`\frac{N}{n} \sum_{i \in \text{batch}} \nabla \log p(y_i \mid w) + \nabla \log p(w)`."""

    def slope(self, target: Target, memory: PyTree, position: Array, batch: Data) -> Slope:
        """The estimate."""
        return _slope(target, position, batch)


class Anchor(NamedTuple):
    """A place where the gradient of all rows is known."""

    position: Array
    log_likelihood: Array
    gradient: Array


def _anchored(target: Target, anchor: Anchor, position: Array, batch: Data) -> Slope:
    """The batch tells how far the gradient is from that at the anchor."""
    here, there = _slope(target, position, batch), _likelihood_slope(target, anchor.position, batch)
    value = here.log_density + (anchor.log_likelihood - there.log_density)
    return Slope(value, here.gradient + (anchor.gradient - there.gradient))


@jax.jit
def _anchor_at(target: Target, rows: Everything, position: Array) -> Anchor:
    value, gradient = rows.slope(target, unravel(shapes(target.model), position))
    return Anchor(position, value, ravel(gradient))


class ControlVariate(Estimator):
    r"""The gradient of all rows at a point near the mode, and by the batch how it has changed :cite:p:`baker2019cv`.

    .. math::

        \nabla \log p(w) + \sum_{i=1}^N \nabla \ell_i(\hat w)
        + \frac{N}{n} \sum_{i \in \text{batch}} \big( \nabla \ell_i(w) - \nabla \ell_i(\hat w) \big)

    Its noise falls with the distance from :math:`\hat w`: it serves posteriors with one mode and many rows. A network's
    chain goes far away, where it may be noisier than `Plain`. A step costs two gradients.

    Parameters
    ----------
    point
        How :math:`\hat w` is found: a `tunbridge.MAP`. A posterior given as ``fit(init=)`` takes its place.
    """

    point: MAP | None = MAP()
    anchor: PyTree = None
    """Found by `fit`."""

    def settled(self, model: Model, data: Data | Stream, epoch: int, key: Key, options: Options) -> "ControlVariate":
        """Find the anchor and the gradient of all rows there."""
        rows = Everything.of(data, "ControlVariate")
        init = options.init
        if isinstance(init, Posterior):
            params = jax.tree.map(lambda leaf: leaf[0], init.starts(key, 1))
        elif isinstance(init, Params):
            params = init
        else:
            assert self.point is not None
            (found,) = self.point.posteriors(model, data, key, 1, options.within("point"))
            params = jax.tree.map(lambda leaf: leaf[0], found.starts(key, 1))
        target = Target(model, float(rows.num))
        return dataclasses.replace(self, point=None, anchor=_anchor_at(target, rows, ravel(params)))

    def slope(self, target: Target, memory: PyTree, position: Array, batch: Data) -> Slope:
        """The estimate."""
        anchor = self.anchor._replace(
            log_likelihood=self.anchor.log_likelihood / target.temperature,
            gradient=self.anchor.gradient / target.temperature,
        )
        return _anchored(target, anchor, position, batch)


def _every(steps: Count | None) -> Any:
    return steps


class SVRG(Estimator):
    """`ControlVariate` with an anchor that is moved to where the chain is, every so many steps :cite:p:`dubey2016svrg`.

    Each move costs a gradient of all rows, each step two of a batch.

    Parameters
    ----------
    every
        Steps between moves; None is two epochs.
    """

    every: Any = eqx.field(default=None, converter=_every)
    rows: Any = None
    """Found by `fit`."""

    def settled(self, model: Model, data: Data | Stream, epoch: int, key: Key, options: Options) -> "SVRG":
        """Take all rows along."""
        every = 2 * epoch if self.every is None else self.every
        return SVRG(every, Everything.of(data, "SVRG"))

    def begin(self, target: Target, position: Array) -> Anchor:
        """An anchor where the chain starts."""
        return _anchor_at(target, self.rows, position)

    def follow(self, target: Target, memory: Anchor, position: Array, step: Array) -> Anchor:
        """An anchor where the chain is, if it is time."""
        return jax.lax.cond(step % self.every == 0, lambda: _anchor_at(target, self.rows, position), lambda: memory)

    def slope(self, target: Target, memory: Anchor, position: Array, batch: Data) -> Slope:
        """The estimate."""
        return _anchored(target, memory, position, batch)
