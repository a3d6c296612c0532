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

__all__ = ["SVRG", "ControlVariate", "Estimate", "Estimator", "Plain"]


class Estimate(NamedTuple):
    """An estimate of the log density, and of its gradient."""

    log_density: Array
    gradient: Array
    """With respect to all unknowns in one vector."""


class Estimator(Module):
    """An estimator of the gradient of the log posterior from a batch."""

    def settled(self, model: Model, data: Data | Stream, epoch: int, key: Key, options: Options) -> "Estimator":
        """The estimator bound to the model, with what it needs from all rows; `epoch` batches make an epoch."""
        return self

    def begin(self, target: Target, position: Array) -> PyTree:
        """Memory before the first step."""
        return ()

    def follow(self, target: Target, memory: PyTree, position: Array, step: Array) -> PyTree:
        """Memory before a step."""
        return memory

    @abc.abstractmethod
    def estimate(self, target: Target, memory: PyTree, position: Array, batch: Data) -> Estimate:
        """Estimate of the log density and its gradient from a batch."""


def _estimate(target: Target, position: Array, batch: Data) -> Estimate:
    value, gradient = jax.value_and_grad(target.log_density)(unravel(shapes(target.model), position), batch)
    return Estimate(value, ravel(gradient))


def _likelihood_estimate(target: Target, position: Array, batch: Data) -> Estimate:
    def tempered(params: Params) -> Array:
        return target.log_likelihood(params, batch) / target.temperature

    value, gradient = jax.value_and_grad(tempered)(unravel(shapes(target.model), position))
    return Estimate(value, ravel(gradient))


class Plain(Estimator):
    r""":math:`\frac{N}{n} \sum_{i \in \text{batch}} \nabla \log p(y_i \mid w) + \nabla \log p(w)`."""

    def estimate(self, target: Target, memory: PyTree, position: Array, batch: Data) -> Estimate:
        """Estimate of the log density and its gradient from a batch."""
        return _estimate(target, position, batch)


class Anchor(NamedTuple):
    """A position at which the gradient of all rows is known."""

    position: Array
    log_likelihood: Array
    gradient: Array


def _anchored(target: Target, anchor: Anchor, position: Array, batch: Data) -> Estimate:
    """The gradient of all rows at the anchor, plus its change since then as estimated from the batch."""
    here, there = _estimate(target, position, batch), _likelihood_estimate(target, anchor.position, batch)
    value = here.log_density + (anchor.log_likelihood - there.log_density)
    return Estimate(value, here.gradient + (anchor.gradient - there.gradient))


@jax.jit
def _anchor_at(target: Target, rows: Everything, position: Array) -> Anchor:
    value, gradient = rows.gradient(target, unravel(shapes(target.model), position))
    return Anchor(position, value, ravel(gradient))


class ControlVariate(Estimator):
    r"""The gradient of all rows at a point near the mode, plus a batch estimate of its change :cite:p:`baker2019cv`.

    .. math::

        \nabla \log p(w) + \sum_{i=1}^N \nabla \ell_i(\hat w)
        + \frac{N}{n} \sum_{i \in \text{batch}} \big( \nabla \ell_i(w) - \nabla \ell_i(\hat w) \big)

    Its noise falls with the distance from :math:`\hat w`: it suits posteriors with one mode and many rows. A network's
    chain moves far away, where it may be noisier than `Plain`. A step costs two gradients.

    Parameters
    ----------
    point
        How :math:`\hat w` is found: a `tunbridge.MAP`. A posterior given as ``fit(init=)`` replaces it.
    """

    point: MAP | None = MAP()
    anchor: PyTree = None
    """Set by `fit`."""

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
            (posterior,) = self.point.posteriors(model, data, key, 1, options.within("point"))
            params = jax.tree.map(lambda leaf: leaf[0], posterior.starts(key, 1))
        target = Target(model, float(rows.num))
        return dataclasses.replace(self, point=None, anchor=_anchor_at(target, rows, ravel(params)))

    def estimate(self, target: Target, memory: PyTree, position: Array, batch: Data) -> Estimate:
        """Estimate of the log density and its gradient from a batch."""
        anchor = self.anchor._replace(
            log_likelihood=self.anchor.log_likelihood / target.temperature,
            gradient=self.anchor.gradient / target.temperature,
        )
        return _anchored(target, anchor, position, batch)


def _every(steps: Count | None) -> Any:
    return steps


class SVRG(Estimator):
    """`ControlVariate` with an anchor that is moved to the chain's position at intervals :cite:p:`dubey2016svrg`.

    Each move of the anchor costs a gradient of all rows, each step two gradients of a batch.

    Parameters
    ----------
    every
        Number of steps between moves; None is two epochs.
    """

    every: Any = eqx.field(default=None, converter=_every)
    rows: Any = None
    """Set by `fit`."""

    def settled(self, model: Model, data: Data | Stream, epoch: int, key: Key, options: Options) -> "SVRG":
        """The estimator with all rows, and with its number of steps between moves."""
        every = 2 * epoch if self.every is None else self.every
        return SVRG(every, Everything.of(data, "SVRG"))

    def begin(self, target: Target, position: Array) -> Anchor:
        """Anchor at the chain's start."""
        return _anchor_at(target, self.rows, position)

    def follow(self, target: Target, memory: Anchor, position: Array, step: Array) -> Anchor:
        """Anchor at the chain's position if a move is due, else the old one."""
        return jax.lax.cond(step % self.every == 0, lambda: _anchor_at(target, self.rows, position), lambda: memory)

    def estimate(self, target: Target, memory: Anchor, position: Array, batch: Data) -> Estimate:
        """Estimate of the log density and its gradient from a batch."""
        return _anchored(target, memory, position, batch)
