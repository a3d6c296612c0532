r"""A step size from what is measured in warm-up: curvature, and the noise of the gradient.

In the units of the metric A the log posterior has a largest curvature :math:`\lambda` and its estimated gradient a
variance :math:`v`. A step :math:`\eta` widens the stiffest direction by about :math:`\eta \lambda / 4` and heats the
chain by :math:`\eta v / 2 \alpha`, with :math:`\alpha` the friction: the default is the largest that keeps both small.

The first part of warm-up is a descent in steps of the prior's scales, which finds the posterior from afar. Then the
chains meet three times: at each they pool what their preconditioners gathered and measure; at the last they agree on
one step size.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.tree import unravel
from tunbridge.core.types import Params
from tunbridge.inference.sgmcmc.preconditioners import Metric

_PERCENT = (40, 60, 80)
"""When chains meet, in percent of warm-up."""
NUM_MEETINGS = len(_PERCENT)
_STIFFNESS, _HEAT = 0.1, 0.05
"""The step size times the largest curvature, and by how much gradient noise may heat the chain."""
_STRIDE = 0.02
"""A step of the descent, in the prior's scales and for momentum that is forgotten at once."""
_MEMORY = 0.95
"""Of the descent's running mean of squared gradients."""


def meetings(warmup: int) -> tuple[int, ...]:
    """The steps after which chains meet."""
    return tuple(warmup * percent // 100 for percent in _PERCENT)


class Measured(NamedTuple):
    """What a step size is made from."""

    curvature: Array
    """The largest, in the units of the metric."""
    noise: Array
    """The variance of the gradient in these units, of the noisiest group of unknowns."""

    def step_size(self, friction: Any, reach: float) -> Array:
        """The largest that is small enough."""
        heats = 2.0 * _HEAT * friction / jnp.maximum(self.noise, jnp.finfo(self.noise.dtype).tiny)
        return reach * jnp.minimum(_STIFFNESS / self.curvature, heats)


class Tuning(NamedTuple):
    """What warm-up remembers."""

    step_size: Array
    measured: Measured
    variance: Array
    """Of the prior."""
    squares: Array
    """The descent's running mean of squared gradients."""
    left: Array
    """Meetings that lie ahead."""

    @property
    def descends(self) -> Array:
        """Whether the first meeting lies ahead."""
        return self.left == NUM_MEETINGS


def begin(variance: Array, slope: Array, measured: Measured, step_size: Array, warmup: Array) -> Tuning:
    """Before the first step."""
    left = jnp.where(warmup > 0, NUM_MEETINGS, 0).astype(jnp.int32)
    return Tuning(step_size, measured, variance, slope**2, left)


def descent(tuning: Tuning, slope: Array) -> tuple[Tuning, Metric]:
    """A metric in which a step goes as far as the prior's scale, whatever the gradient."""
    squares = _MEMORY * tuning.squares + (1.0 - _MEMORY) * slope**2
    tiny = jnp.finfo(slope.dtype).tiny ** 0.5
    stiffness = (jnp.sqrt(squares) + tiny) / jnp.sqrt(tuning.variance)
    return tuning._replace(squares=squares), Metric(1.0 / stiffness, jnp.sqrt(stiffness))


def stride(friction: Any) -> Array:
    """The step size of the descent."""
    return _STRIDE * jnp.asarray(friction)


def noisiest(like: Params, halves: Array, metric: Metric, share: Any) -> Array:
    """The variance of a batch's gradient in the metric's units, of the group of unknowns that has most.

    `halves` (2, unknowns) are the gradients of the two halves of a batch, `share` the part of all rows it holds.
    """
    variance = (1.0 - share) * metric.scale * ((halves[0] - halves[1]) / 2.0) ** 2
    return jnp.max(jnp.stack([jnp.mean(leaf) for leaf in jax.tree.leaves(unravel(like, variance))]))
