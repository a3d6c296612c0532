r"""A step size from what is measured in warm-up: curvature, and the noise of the gradient.

In the units of the metric A the log posterior has a largest curvature :math:`\lambda` and its estimated gradient a
variance :math:`v`. A step :math:`\eta` widens the stiffest direction by about :math:`\eta \lambda / 4` and heats the
chain by :math:`\eta v / 2 \alpha`, with :math:`\alpha` the friction: the default is the largest that keeps both small.

The first part of warm-up is a descent in steps of the prior's scales, which finds the posterior from afar. Then the
chains meet three times: at each they pool what their preconditioners gathered and measure; at the last they agree on
one step size. A chain that is lost in warm-up, in a place that is stiffer than where it measured, goes back to where it
met the others, with a quarter of the step; at the next meeting, if there is one, the others take such steps too.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.tree import unravel
from tunbridge.core.types import Key, PyTree
from tunbridge.inference import scales
from tunbridge.inference.sampler import shapes
from tunbridge.inference.sgmcmc.preconditioners import Metric
from tunbridge.inference.sgmcmc.subsampling import Estimator, Slope
from tunbridge.model.model import Target

_PERCENT = (40, 60, 80)
"""When chains meet, in percent of warm-up."""
NUM_MEETINGS = len(_PERCENT)
_STIFFNESS, _HEAT = 0.1, 0.05
"""The step size times the largest curvature, and by how much gradient noise may heat the chain."""
_STRIDE, _FRICTION = 0.04, 0.1
"""A step of the descent, in the prior's scales and for momentum that is forgotten at once; the least friction there."""
_ACCEPTANCE, _GAIN = 0.65, 0.05
"""The acceptance that corrected steps are tuned to, and how fast."""
_LEAST_CAUTION = 1e-6
"""Ten rescues, after which a lost chain is an error."""
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
        """The largest that is small enough; a schedule's first may be `reach` times a constant one."""
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
    refuge: PyTree
    """What a chain was when it last met the others: its position, and what it remembered."""
    caution: Array
    """What the measured step size is multiplied with: less each time that a chain is lost."""

    @property
    def descends(self) -> Array:
        """Whether the first meeting lies ahead."""
        return self.left == NUM_MEETINGS


def begin(variance: Array, slope: Array, measured: Measured, step_size: Array, warmup: Array, refuge: PyTree) -> Tuning:
    """Before the first step."""
    left = jnp.where(warmup > 0, NUM_MEETINGS, 0).astype(jnp.int32)
    return Tuning(step_size, measured, variance, slope**2, left, refuge, jnp.ones_like(step_size))


def descent(tuning: Tuning, slope: Array) -> tuple[Tuning, Metric]:
    """A metric in which a step goes as far as the prior's scale, whatever the gradient, and noise no further."""
    squares = _MEMORY * tuning.squares + (1.0 - _MEMORY) * slope**2
    stiffness = jnp.maximum(jnp.sqrt(squares / tuning.variance), 1.0 / tuning.variance)
    return tuning._replace(squares=squares), Metric(1.0 / stiffness, jnp.sqrt(stiffness))


def friction(usual: Array, warmup: Array) -> Array:
    """That of the descent, where there is one: with less a chain passes the posterior by and comes back late."""
    return jnp.where(warmup > 0, jnp.maximum(usual, _FRICTION), usual)


def stride(friction: Any, step: Array, warmup: Array) -> Array:
    """The step size of the descent. In its second half it falls to a hundredth: a posterior may be narrow."""
    late = jnp.maximum(2.0 * step / jnp.maximum(warmup * _PERCENT[0] // 100, 1) - 1.0, 0.0)
    return _STRIDE * friction * jnp.maximum(0.5 * (1.0 + jnp.cos(jnp.pi * late)), 0.01)


def arrival(warmup: Array) -> Array:
    """The step of the descent from which on gradients are worth remembering."""
    return warmup * (_PERCENT[0] // 2) // 100


def answer(tuning: Tuning, acceptance: Array) -> Tuning:
    """A step size nearer to that of the acceptance wanted, until the last meeting."""
    learns = (tuning.left > 0) & ~tuning.descends
    factor = jnp.exp(_GAIN * (jnp.nan_to_num(acceptance, nan=_ACCEPTANCE) - _ACCEPTANCE))
    return tuning._replace(step_size=jnp.where(learns, factor, 1.0).astype(tuning.step_size.dtype) * tuning.step_size)


def lost(tuning: Tuning, position: Array, log_density: Array) -> Array:
    """Whether a chain that has left the descent is nowhere; one that was rescued often enough is given up."""
    somewhere = jnp.isfinite(log_density) & jnp.all(jnp.isfinite(position))
    return ~somewhere & ~tuning.descends & (tuning.caution > _LEAST_CAUTION)


def slower(tuning: Tuning) -> Tuning:
    """With a quarter of the step."""
    return tuning._replace(step_size=0.25 * tuning.step_size, caution=0.25 * tuning.caution)


def measure(
    key: Key, target: Target, estimator: Estimator, anchor: PyTree, position: Array, batch: Data, metric: Metric
) -> Measured:
    """The largest curvature here, by this batch, and the noise of its gradient in the group that has most."""

    def slope_of(position: Array) -> Array:
        return estimator.slope(target, anchor, position, batch).gradient

    curvature = scales.curvature(key, slope_of, position, metric.scale)
    if batch.capacity < 2:
        return Measured(curvature, jnp.zeros_like(curvature))
    spread = metric.scale * variance(halves(target, estimator, anchor, position, batch), target, batch)
    groups = jax.tree.leaves(unravel(shapes(target.model), spread))
    return Measured(curvature, jnp.max(jnp.stack([jnp.mean(group) for group in groups])))


def halves(target: Target, estimator: Estimator, anchor: PyTree, position: Array, batch: Data) -> Slope:
    """The estimates by both halves of a batch, its even and its odd rows, with a leading axis."""
    half = batch.capacity // 2

    def halved(leaf: Array) -> Array:
        return jnp.swapaxes(leaf[: 2 * half].reshape(half, 2, *leaf.shape[1:]), 0, 1)

    count = None if batch.count is None else jnp.maximum((batch.count + jnp.array([1, 0])) // 2, 1)
    weight = None if batch.weight is None else halved(batch.weight)
    parts = batch.with_rows(halved(batch.x), halved(batch.y), weight, count)
    return jax.lax.map(lambda part: estimator.slope(target, anchor, position, part), parts)


def variance(halves: Slope, target: Target, batch: Data) -> Array:
    """Of the whole batch's gradient, of rows that are drawn without replacement."""
    left = 1.0 - jnp.minimum(batch.num / target.num, 1.0)
    return left * ((halves.gradient[0] - halves.gradient[1]) / 2.0) ** 2


def independence(friction: float, epoch: int) -> float:
    r"""The share of the gradient's noise that heats a chain whose epochs see each row once.

    The noise of the K batches of an epoch sums to 0, so that momentum :math:`y_t = \rho y_{t-1} + n_t` with
    :math:`\rho = 1 - \alpha` that lasts for several epochs hardly feels it. It is the variance of y, with a covariance
    of -1 / (K - 1) between batches of one epoch, by that of independent batches.

    Examples
    --------
    >>> independence(1.0, 50), round(independence(0.01, 10), 3)
    (1.0, 0.036)
    """
    if epoch < 2:
        return 1.0
    rho = (1.0 - friction) ** np.arange(epoch)
    single, pairs = np.cumsum(rho**2), np.cumsum(rho) ** 2
    part = single - (pairs - single) / (epoch - 1)
    rest = (1.0 - friction) ** (2 * np.arange(1, epoch + 1)) * part[-1] / (1.0 - (1.0 - friction) ** (2 * epoch))
    return float(np.mean(part + rest) * (1.0 - (1.0 - friction) ** 2))
