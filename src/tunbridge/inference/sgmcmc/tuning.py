r"""A step size from two measurements in warm-up: the curvature, and the noise of the gradient.

In the units of the metric A the log posterior has a largest curvature :math:`\lambda` and its estimated gradient a
variance :math:`v`. A step size :math:`\eta` widens the stiffest direction by about :math:`\eta \lambda / 4` and heats
the chain by :math:`s \eta v / 2 \alpha`, with :math:`\alpha` the friction and *s* the share of the noise that does not
cancel over an epoch (`tunbridge.inference.sgmcmc.epochs`): the default is the largest that keeps both effects small.

The first part of warm-up is a descent with steps in units of the prior's scales, which finds the posterior from afar.
Then the chains meet three times: each time they pool the statistics of their preconditioners and measure; at the last
meeting they agree on one step size. A chain that is lost (`tunbridge.inference.sgmcmc.guard`), in a place that is
stiffer than where it measured, returns to where it last met the others, with a quarter of the step size; at the next
meeting, if there is one, the others take such steps too.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.tree import unravel
from tunbridge.core.types import Key, PyTree
from tunbridge.inference import scales
from tunbridge.inference.sampler import shapes
from tunbridge.inference.sgmcmc import guard
from tunbridge.inference.sgmcmc.epochs import Cancellation
from tunbridge.inference.sgmcmc.guard import Guard
from tunbridge.inference.sgmcmc.preconditioners import Metric
from tunbridge.inference.sgmcmc.subsampling import Estimate, Estimator
from tunbridge.model.model import Target

_PERCENT = (40, 60, 80)
"""When chains meet, in percent of warm-up."""
NUM_MEETINGS = len(_PERCENT)
STIFFNESS, _HEAT = 0.1, 0.05
"""Largest step size times curvature, and by how much gradient noise may heat the chain."""
_STRIDE, _FRICTION = 0.04, 0.1
"""Step of the descent at friction 1 (no momentum), in units of the prior's scales; the least friction there."""
_ACCEPTANCE, _GAIN = 0.65, 0.05
"""Acceptance rate that corrected steps are tuned to, and how fast."""
_LEAST_CAUTION = 1e-6
"""Reached after ten rescues; from then on a lost chain is an error."""
_MEMORY = 0.95
"""Decay of the descent's running mean of squared gradients."""


def meetings(warmup: int) -> tuple[int, ...]:
    """Steps of warm-up after which chains meet."""
    return tuple(warmup * percent // 100 for percent in _PERCENT)


class Measured(NamedTuple):
    """The measurements that a step size is computed from."""

    curvature: Array
    """The largest curvature, in the units of the metric."""
    noise: Array
    """The variance of the gradient in these units, of the noisiest group of unknowns."""

    def step_size(self, friction: Any, reach: float, cancelled: Cancellation) -> Array:
        """Largest step size that keeps both effects small; a schedule's first may be `reach` times a constant one."""
        heats = 2.0 * _HEAT * friction / jnp.maximum(self.noise, jnp.finfo(self.noise.dtype).tiny)
        stiffest = STIFFNESS / self.curvature
        return reach * jnp.max(jnp.minimum(stiffest * cancelled.fractions, heats / cancelled.shares))


class Tuning(NamedTuple):
    """Memory of warm-up."""

    step_size: Array
    measured: Measured
    variance: Array
    """Variance of each unknown under the prior."""
    squares: Array
    """The descent's running mean of squared gradients."""
    left: Array
    """Number of meetings still to come."""
    refuge: PyTree
    """Position and memories of the chain when it last met the others."""
    caution: Array
    """Factor on the measured step size, reduced each time that a chain is lost."""
    guard: Guard
    late: Array
    """Number of times that the chain was lost after warm-up."""

    @property
    def descends(self) -> Array:
        """Whether the chain is still in the descent, before the first meeting."""
        return self.left == NUM_MEETINGS


def begin(
    variance: Array, gradient: Array, measured: Measured, step_size: Array, warmup: Array, refuge: PyTree
) -> Tuning:
    """Memory before the first step."""
    left = jnp.where(warmup > 0, NUM_MEETINGS, 0).astype(jnp.int32)
    one, none = jnp.ones_like(step_size), jnp.zeros((), jnp.int32)
    return Tuning(step_size, measured, variance, gradient**2, left, refuge, one, guard.begin(gradient), none)


def descent(tuning: Tuning, gradient: Array) -> tuple[Tuning, Metric]:
    """Memory with this gradient, and a metric in which gradient steps have the prior's scale and noise is no larger."""
    squares = _MEMORY * tuning.squares + (1.0 - _MEMORY) * gradient**2
    stiffness = jnp.maximum(jnp.sqrt(squares / tuning.variance), 1.0 / tuning.variance)
    return tuning._replace(squares=squares), Metric(1.0 / stiffness, jnp.sqrt(stiffness))


def friction(usual: Array, warmup: Array) -> Array:
    """Friction of the descent, or `usual` without one: with less, a chain overshoots the posterior and returns late."""
    return jnp.where(warmup > 0, jnp.maximum(usual, _FRICTION), usual)


def stride(friction: Any, step: Array, warmup: Array) -> Array:
    """Step size of the descent. In the second half it falls to a hundredth, as a posterior may be narrow."""
    late = jnp.maximum(2.0 * step / jnp.maximum(warmup * _PERCENT[0] // 100, 1) - 1.0, 0.0)
    return _STRIDE * friction * jnp.maximum(0.5 * (1.0 + jnp.cos(jnp.pi * late)), 0.01)


def arrival(warmup: Array) -> Array:
    """Step of the descent from which on preconditioners learn from gradients."""
    return warmup * (_PERCENT[0] // 2) // 100


def answer(tuning: Tuning, acceptance: Array) -> Tuning:
    """Memory with the step size moved towards the target acceptance rate, until the last meeting."""
    learns = (tuning.left > 0) & ~tuning.descends
    factor = jnp.exp(_GAIN * (jnp.nan_to_num(acceptance, nan=_ACCEPTANCE) - _ACCEPTANCE))
    return tuning._replace(step_size=jnp.where(learns, factor, 1.0).astype(tuning.step_size.dtype) * tuning.step_size)


def lost(tuning: Tuning, position: Array, log_density: Array) -> Array:
    """Whether a chain past the descent is not finite, or runs away."""
    return guard.lost(tuning.guard, log_density, position) & ~tuning.descends


def slower(tuning: Tuning, late: Array) -> Tuning:
    """Memory of a chain that returns to its refuge, with a quarter of the step size; `late` is after warm-up."""
    return tuning._replace(
        step_size=0.25 * tuning.step_size,
        caution=0.25 * tuning.caution,
        guard=tuning.refuge.guard,
        late=tuning.late + late,
    )


def hopeless(tuning: Tuning) -> Array:
    """Whether the chain was rescued so often that the next loss is an error."""
    return tuning.caution <= _LEAST_CAUTION


def measure(
    key: Key, target: Target, estimator: Estimator, anchor: PyTree, position: Array, batch: Data, metric: Metric
) -> Measured:
    """Largest curvature here for this batch, and the gradient noise of the noisiest group of unknowns."""

    def gradient(position: Array) -> Array:
        return estimator.estimate(target, anchor, position, batch).gradient

    curvature = scales.curvature(key, gradient, position, metric.scale)
    if batch.capacity < 2:
        return Measured(curvature, jnp.zeros_like(curvature))
    spread = metric.scale * variance(halves(target, estimator, anchor, position, batch), target, batch)
    groups = jax.tree.leaves(unravel(shapes(target.model), spread))
    return Measured(curvature, jnp.max(jnp.stack([jnp.mean(group) for group in groups])))


def halves(target: Target, estimator: Estimator, anchor: PyTree, position: Array, batch: Data) -> Estimate:
    """Estimates from the two halves of a batch, its even and its odd rows, with a leading axis."""
    half = batch.capacity // 2

    def halved(leaf: Array) -> Array:
        return jnp.swapaxes(leaf[: 2 * half].reshape(half, 2, *leaf.shape[1:]), 0, 1)

    count = None if batch.count is None else jnp.maximum((batch.count + jnp.array([1, 0])) // 2, 1)
    weight = None if batch.weight is None else halved(batch.weight)
    parts = batch.with_rows(halved(batch.x), halved(batch.y), weight, count)
    return jax.lax.map(lambda part: estimator.estimate(target, anchor, position, part), parts)


def variance(halves: Estimate, target: Target, batch: Data) -> Array:
    """Variance of the whole batch's gradient, for rows drawn without replacement."""
    left = 1.0 - jnp.minimum(batch.num / target.num, 1.0)
    return left * ((halves.gradient[0] - halves.gradient[1]) / 2.0) ** 2
