"""SWAG (stochastic weight averaging, Gaussian): the mean and covariance of snapshots along the path of SGD."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from tunbridge.core.data import Data, capacity_for
from tunbridge.core.errors import InputError
from tunbridge.core.tree import strong
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.inference.base import Iterative
from tunbridge.inference.point import descent
from tunbridge.inference.point.lowrank import LowRankGaussian
from tunbridge.inference.point.map import MAP
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.promises import Promises, Spreads
from tunbridge.model.model import Model, Target
from tunbridge.runtime.durations import BATCH, Train
from tunbridge.runtime.loop import Trace

_MOST_ROWS = 128
_POWER_STEPS = 20
_MEASURE_STEPS, _MEASURE_ROWS = 64, 8
"""The step size is estimated from the gradients of `_MEASURE_ROWS` rows in each of the last training steps."""
_STABLE = 0.5
"""The largest step size, as a share of 2 / curvature, at which SGD diverges in the sharpest direction."""


class SWAGState(NamedTuple):
    """The point estimate's state, and statistics gathered along the path of SGD that follows."""

    point: descent.DescentState
    step: Array
    gradients: PyTree
    """Sum of per-row gradients."""
    lengths: Array
    """Sum of their squared norms."""
    rows: Array
    """Number of these rows."""
    step_size: Array
    num: Array
    """Number of snapshots taken."""
    mean: PyTree
    squares: PyTree
    """Sum of the snapshots' squared deviations from the mean."""
    recent: PyTree
    """The last snapshots' deviations from the mean at that time, (rank + 1, ...): the last row is never read."""


class SWAG(Iterative):
    r"""A Gaussian from the path of SGD around a point estimate :cite:p:`maddox2019simple`.

    From the point estimate on, SGD runs with a constant step size. The mean :math:`\bar w` and variances
    :math:`\Sigma_\text{diag}` of snapshots along its path, and the last K deviations D from the mean, give

    .. math::

        w = \bar w + \tfrac{1}{\sqrt 2} \Sigma_\text{diag}^{1/2} z_1 + \tfrac{1}{\sqrt{2 (K - 1)}} D z_2.

    Unless given, the step size is the one for which the stationary distribution of SGD is closest to the posterior,
    :math:`\epsilon = 2 \tfrac{n}{N} \tfrac{d}{\text{tr}\, C}` :cite:p:`mandt2017stochastic`, where C is the covariance
    of the rows' gradients and d the number of weights; but at most half of what the curvature allows. Both are measured
    at the point estimate.

    Parameters
    ----------
    point
        The point estimate to start from. If its ``train.batch_size`` is None, steps use a quarter of the rows, at
        most 128: without minibatches SGD would not move.
    steps
        Number of SGD steps after the point estimate.
    step_size
        Step size of these steps, on -log posterior / N; None estimates it.
    snapshots
        Number of snapshots along the path.
    rank
        Number of last snapshots that make up the low-rank part.
    """

    promises: ClassVar[Promises] = {  # the mean of a path of SGD; its spread is 0.1 to 2 times the posterior's
        "linear": ("mean", 0.5),
        "linear_unknown": ("mean", 0.5),
        "logistic": ("mean", 1),
        "tanh_unit": ("mean", 1),
    }
    spreads: ClassVar[Spreads] = {"numbers": (0.3, 0.7), "classes": (0.1, 0.1)}

    point: MAP = MAP()
    steps: int = 2000
    step_size: float | None = eqx.field(default=None, converter=lambda size: None if size is None else float(size))
    snapshots: int = 100
    rank: int = eqx.field(default=20, static=True)

    def __check_init__(self):
        if self.step_size is not None and not self.step_size > 0:
            raise InputError("a step size above 0", f"{self.step_size}", "Leave it out to have it measured.")
        if not 2 <= self.rank <= self.snapshots <= self.steps:
            raise InputError(
                "2 <= rank <= snapshots <= steps", f"{self.rank}, {self.snapshots}, {self.steps}", "Change these."
            )

    @property
    def duration(self) -> Train:
        """The training steps of the point estimate plus those of SGD after it."""
        return Train(self.point.train.steps + self.steps, self.point.train.batch_size)

    @property
    def gradients_per_step(self) -> int | None:
        """One gradient per step."""
        return 1

    def within(self, gradients: int, rows: int) -> Self:
        """Return the method with half the budget for the point estimate and half for SGD after it."""
        steps = max(gradients // 2 // min(rows, BATCH), self.snapshots)
        return dataclasses.replace(self, point=self.point.within(gradients // 2, rows), steps=steps)

    def batch_size(self, num: int) -> int | None:
        """Return the point estimate's batch size, or if it has none, about a quarter of the rows, at most 128."""
        given = self.point.train.batch_size
        return given if given is not None else min(_MOST_ROWS, max(1, min(num // 2, capacity_for(num) // 4)))

    def believed(self, model: Model) -> Model:
        """Return the model that the point estimate fits."""
        return self.point.believed(model)

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> SWAGState:
        """Return the point estimate's initial state, with no statistics gathered."""
        return self._nothing(self.point.init(key, target, params, batch, warmup), params)

    def init_at(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> SWAGState:
        """Return the initial state when `fit` was given weights."""
        return self._nothing(self.point.init_at(key, target, params, batch, warmup), params)

    def _nothing(self, point: descent.DescentState, params: Params) -> SWAGState:
        zeros = jax.tree.map(jnp.zeros_like, params.weights)
        recent = jax.tree.map(lambda leaf: jnp.zeros((self.rank + 1, *leaf.shape), leaf.dtype), params.weights)
        zero = jnp.zeros((), jnp.int32)
        none = jnp.zeros(())
        return strong(SWAGState(point, zero, zeros, none, zero, none, zero, zeros, zeros, recent))

    def step(self, key: Key, target: Target, state: SWAGState, batch: Data) -> tuple[SWAGState, descent.Info]:
        """Take a step of the point estimate, or of SGD after it."""
        ahead = self.point.train.steps - state.step
        begins, wanders = ahead == 0, ahead <= 0
        point, step_size, params = state.point, state.step_size, state.point.measured

        def loss_of(weights: PyTree) -> Scalar:
            return -self.point.objective(key, target, params._replace(weights=weights), (), batch) / target.num

        def train(_, carry):
            return self.point.step(key, target, carry[0], batch)

        def wander(_, carry):
            loss, gradient = jax.value_and_grad(loss_of)(carry[0].params.weights)
            moved = jax.tree.map(lambda w, g: w - step_size * g, carry[0].params.weights, gradient)
            return carry[0]._replace(params=carry[0].params._replace(weights=moved)), descent.Info.of(loss)

        sums = _add_rows((ahead > 0) & (ahead <= _MEASURE_STEPS), target, params, batch, state)
        if self.step_size is None:
            stable = _STABLE * 2.0 / _curvature(begins, loss_of, point.params.weights)
            step_size = jnp.where(begins, jnp.minimum(_spreading(*sums, target, batch), stable), step_size)
        else:
            step_size = jnp.asarray(self.step_size, step_size.dtype)
        info = descent.Info.of(jnp.zeros(()))
        point, info = jax.lax.fori_loop(0, (~wanders).astype(jnp.int32), train, strong((point, info)))
        point, info = jax.lax.fori_loop(0, wanders.astype(jnp.int32), wander, (point, info))
        gradients, lengths, rows = sums
        state = state._replace(gradients=gradients, lengths=lengths, rows=rows, step_size=step_size)
        state = state._replace(point=point, step=state.step + 1)
        done, due = -ahead, (1 - ahead) * self.snapshots // self.steps
        return self._gather(state, wanders & (due > done * self.snapshots // self.steps)), info

    def _gather(self, state: SWAGState, takes: Array) -> SWAGState:
        """Welford's update of mean and squares with the current weights, if a snapshot is due."""
        count, weights = state.num + takes, state.point.params.weights
        share = jnp.where(takes, 1.0 / jnp.maximum(count, 1), 0.0)
        mean = jax.tree.map(lambda m, w: m + share * (w - m), state.mean, weights)
        squares = jax.tree.map(
            lambda s, old, new, w: s + jnp.where(takes, (w - old) * (w - new), 0.0),
            state.squares,
            state.mean,
            mean,
            weights,
        )
        slot = jnp.where(takes, (count - 1) % self.rank, self.rank)
        recent = jax.tree.map(lambda r, w, m: r.at[slot].set(w - m), state.recent, weights, mean)
        return state._replace(num=count, mean=mean, squares=squares, recent=recent)

    def keep(self, target: Target, state: SWAGState) -> PyTree:
        """Store nothing: the last state holds the statistics."""
        return ()

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Posterior:
        """Return the Gaussian of the snapshots; the point estimate if fewer than two were taken."""
        (trace,) = traces
        state, count = trace.state, int(trace.state.num)
        params, step = self.point.reached(state.point), int(state.step)
        notes = self.point.notes(params, min(step, self.point.train.steps))
        if count < 2:
            notes += ("Stopped before two snapshots were taken: this is the point estimate.",)
        elif step < self.point.train.steps + self.steps:
            notes += (f"Stopped after {count} of {self.snapshots} snapshots.",)
        rank = min(self.rank, count)
        mean = params._replace(weights=state.mean) if count else params
        variance = jax.tree.map(lambda s: s / (2.0 * max(count, 1)), state.squares)
        factors = jax.tree.map(lambda r: r[:rank] / jnp.sqrt(2.0 * max(rank - 1, 1)), state.recent)
        if count < 2:
            factors = jax.tree.map(jnp.zeros_like, factors)
        return LowRankGaussian(model, key, mean, variance, factors, notes=notes)


def _add_rows(due: Array, target: Target, params: Params, batch: Data, state: SWAGState) -> tuple[PyTree, Array, Array]:
    """A state's sums `gradients`, `lengths` and `rows` with some rows of a batch added; unless due, unchanged."""
    row_target = Target(target.model, 1.0)

    def add(i: Array, sums: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        weight = None if batch.weight is None else batch.weight[i][None]
        row = batch.with_rows(batch.x[i][None], batch.y[i][None], weight)
        gradient = jax.grad(lambda w: row_target.log_likelihood(params._replace(weights=w), row))(params.weights)
        return optax.tree.add(sums[0], gradient), sums[1] + optax.tree.norm(gradient, squared=True)

    num_added = due.astype(jnp.int32) * jnp.minimum(_MEASURE_ROWS, batch.num)
    gradients, lengths = jax.lax.fori_loop(0, num_added, add, (state.gradients, state.lengths))
    return gradients, lengths, state.rows + num_added


def _spreading(gradients: PyTree, lengths: Array, rows: Array, target: Target, batch: Data) -> Array:
    """2 n/N d/tr C, the step size for which the path of SGD is closest to the posterior."""
    rows = jnp.maximum(rows, 1)
    trace = lengths / rows - optax.tree.norm(gradients, squared=True) / rows**2
    size = sum(leaf.size for leaf in jax.tree.leaves(gradients))
    return 2.0 * (batch.num / target.num) * size / jnp.maximum(trace, 1e-30)


def _curvature(due: Array, loss_of: Callable[[PyTree], Scalar], weights: PyTree) -> Array:
    """The largest curvature of a loss, by power iteration; a loop of 0 iterations unless due."""

    def iterate(_: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        product = jax.jvp(jax.grad(loss_of), (weights,), (carry[0],))[1]
        length = jnp.maximum(optax.tree.norm(product), 1e-30)
        return jax.tree.map(lambda leaf: leaf / length, product), length

    first = jax.tree.map(jnp.ones_like, weights), jnp.full((), 1e-30)
    return jax.lax.fori_loop(0, due.astype(jnp.int32) * _POWER_STEPS, iterate, strong(first))[1]
