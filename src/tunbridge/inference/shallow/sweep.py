"""One sweep over a shallow network's unknowns: hidden units by Metropolis, all else from its conditional."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.tree import ravel, unravel
from tunbridge.core.types import Key, Params, Scalar
from tunbridge.inference.sampler import Info, shapes
from tunbridge.inference.shallow import conditionals, hyper, jump
from tunbridge.inference.shallow.form import Form, Rows, Unknowns, Work, in_double, in_single
from tunbridge.inference.shallow.marginal import Column, Regression
from tunbridge.model.model import Target
from tunbridge.model.priors.exchangeable import spread

_FORGETTING = 0.6
"""Adaptation of the step size falls with this power of the number of steps."""


_BEGINNING = 0.5
"""Size of the first steps, in prior standard deviations of hidden weights."""


class ShallowState(NamedTuple):
    """Position of a chain, and the size of its steps."""

    position: Array
    log_scale: Array
    step: Array
    warmup: Array

    @classmethod
    def begin(cls, params: Params, warmup: Array) -> "ShallowState":
        """The state before the first step."""
        position = ravel(params)
        return cls(position, jnp.log(jnp.asarray(_BEGINNING, position.dtype)), jnp.zeros((), jnp.int32), warmup)

    def next(
        self, key: Key, target: Target, batch: Data, acceptance: float, jumps: int | Array | None, integrated: bool
    ) -> tuple["ShallowState", Info]:
        """The state after one sweep, and its statistics."""
        form = Form.of(target.model)
        now = form.unknowns(unravel(shapes(target.model), self.position))
        swept = sweep(key, form, now, batch, jnp.exp(self.log_scale), jumps, integrated)
        params = form.params(swept.unknowns)
        log_density = target.log_density(params, batch)
        tuned = adapted(self.log_scale, self.step, self.warmup, swept.acceptance, jnp.asarray(acceptance))
        log_scale = jnp.where(now.number > 0, tuned, self.log_scale)
        nan = jnp.full_like(log_density, jnp.nan)
        info = Info.of(log_density, swept.acceptance, jnp.asarray(False), nan, swept.evaluations)
        return ShallowState(ravel(params), log_scale, self.step + 1, self.warmup), info


class Swept(NamedTuple):
    """The outcome of a sweep."""

    unknowns: Unknowns
    acceptance: Scalar
    """The mean acceptance probability of hidden units; 1 where there is none."""
    evaluations: Scalar
    """Number of hidden units whose likelihood was evaluated."""


def sweep(
    key: Key, form: Form, unknowns: Unknowns, batch: Data, scale: Scalar, jumps: int | Array | None, integrated: bool
) -> Swept:
    """Update all unknowns once, in the order that a partially collapsed sampler needs.

    Hidden units are updated with the coefficients integrated out, then their number, then the coefficients are drawn
    given both, and the numbers and the noise given those. Without `integrated`, hidden units are updated given the
    coefficients.
    """
    key_units, key_left, key_rest = jax.random.split(key, 3)
    rows = Rows.of(batch)
    unknowns, residuals, acceptance = move_units(key_units, form, rows, unknowns, scale, jumps, integrated)
    left = jax.random.normal(key_left, unknowns.hidden.shape)
    unknowns = unknowns._replace(hidden=jnp.where(unknowns.used[None], unknowns.hidden, left))
    unknowns = hyper.update(key_rest, form, unknowns, residuals, jnp.square(rows.root))
    evaluations = unknowns.number + (0.0 if jumps is None else 2.0 * jumps)
    return Swept(unknowns, acceptance, evaluations)


@in_double
def move_units(
    key: Key, form: Form, rows: Rows, unknowns: Unknowns, scale: Scalar, num: int | Array | None, integrated: bool
) -> tuple[Unknowns, Array, Scalar]:
    """Update hidden units, their number if `num` jumps are given, and coefficients, given all numbers and the noise.

    Also returns the residuals y - f(x), (points,), and the mean acceptance probability.
    """
    key_hidden, key_jumps, key_output = in_single(jax.random.split, key, 3)
    columns = form.columns(unknowns, rows)
    steps = _Steps.of(key_hidden, form, rows, unknowns, scale)
    if integrated:
        moved = _integrated(rows, unknowns, columns, steps)
        if num is not None:
            moved = moved._replace(work=jump.jumps(key_jumps, form, rows, unknowns, moved.work, num))
    else:
        moved = _given(rows, unknowns, columns, steps)
    unknowns = unknowns._replace(hidden=moved.work.hidden, number=moved.work.number.astype(unknowns.number.dtype))
    return *draw_coefficients(key_output, rows, unknowns, moved.work), moved.acceptance


def adapted(log_scale: Scalar, step: Array, warmup: Array, acceptance: Scalar, goal: Scalar) -> Scalar:
    """The logarithm of the step size after a step, moved towards the goal during warm-up."""
    gain = jnp.power(1.0 + step, -_FORGETTING)
    return jnp.where(step < warmup, log_scale + gain * (acceptance - goal), log_scale)


def draw_coefficients(key: Key, rows: Rows, unknowns: Unknowns, work: Work) -> tuple[Unknowns, Array]:
    """Draw linear and output weights given the rest; also returns the residuals y - f(x), (points,)."""
    law = conditionals.coefficients(work.regression.gram, work.regression.products)
    normal = in_single(jax.random.normal, key, law.mean.shape)
    drawn = law.mean + spread(law.precision, normal[:, None])[:, 0]
    size = unknowns.linear.size
    rest = rows.whitened(unknowns.sigma) - work.columns @ (work.regression.shifts + drawn)
    rest = jnp.where(rows.root > 0.0, rest / jnp.where(rows.root > 0.0, rows.root, 1.0), 0.0)
    return unknowns._replace(linear=drawn[:size], output=drawn[size:]), rest * unknowns.sigma


class _Moved(NamedTuple):
    """Hidden units after their Metropolis steps."""

    work: Work
    acceptance: Scalar


class _Steps(NamedTuple):
    """Proposals of the Metropolis steps of all units: whatever does not depend on which are accepted."""

    hidden: Array
    """Raw weights, (1 + features, units)."""
    columns: Array
    """Their whitened columns, (points, units), zeros for units left out."""
    log_priors: Array
    """Log ratios of prior densities, (units,)."""
    log_uniform: Array
    """Logarithms of uniform variables, (units,)."""

    @classmethod
    def of(cls, key: Key, form: Form, rows: Rows, unknowns: Unknowns, scale: Scalar) -> "_Steps":
        """Normal steps from the current weights."""
        key_step, key_accept = in_single(jax.random.split, key)
        hidden = unknowns.hidden + scale * in_single(jax.random.normal, key_step, unknowns.hidden.shape)
        columns = jnp.where(unknowns.used[None], form.column(unknowns, rows, hidden), 0.0)
        log_uniform = jnp.log(in_single(jax.random.uniform, key_accept, unknowns.output.shape))
        return cls(hidden, columns, _log_prior(hidden) - _log_prior(unknowns.hidden), log_uniform)


def _integrated(rows: Rows, unknowns: Unknowns, columns: Array, steps: _Steps) -> _Moved:
    """Metropolis steps of the units in use, one by one, with the coefficients integrated out.

    All inner products of columns and proposed columns are computed first, so that a step costs nothing of the length of
    the data.
    """
    first, size = unknowns.linear.size, columns.shape[1]
    both = jnp.concatenate([columns, steps.columns], axis=1)
    products, targets = both.T @ both, both.T @ rows.whitened(unknowns.sigma)

    def move(unit: Array, carry: tuple) -> tuple:
        regression, chosen, total = carry
        index, proposed = first + unit, size + unit
        rest = regression.without(index)
        old = regression.column(index)
        new = Column(products[proposed][chosen].at[index].set(0.0), products[proposed, proposed], targets[proposed])
        log_ratio = rest.gain(index, new) - rest.gain(index, old) + steps.log_priors[unit]
        accept = steps.log_uniform[unit] < log_ratio
        moved = rest.with_column(index, new)
        regression = jax.tree.map(lambda a, b: jnp.where(accept, a, b), moved, regression)
        return regression, chosen.at[index].set(jnp.where(accept, proposed, index)), total + _probability(log_ratio)

    start = Regression.of(products[:size, :size], targets[:size], unknowns.shifts)
    count, whole = unknowns.number.astype(np.int32), jnp.arange(size, dtype=np.int32)
    regression, chosen, total = jax.lax.fori_loop(np.int32(0), count, move, (start, whole, 0.0 * unknowns.sigma))
    accepted = (chosen >= size)[first:]
    work = Work(jnp.where(accepted[None], steps.hidden, unknowns.hidden), both[:, chosen], regression, count)
    none = unknowns.number == 0
    return _Moved(work, jnp.where(none, 1.0, total / jnp.where(none, 1.0, unknowns.number)))


def _given(rows: Rows, unknowns: Unknowns, columns: Array, steps: _Steps) -> _Moved:
    """Metropolis steps of all units, one by one, given the coefficients."""
    y, first = rows.whitened(unknowns.sigma), unknowns.linear.size
    weights = unknowns.shifts + jnp.concatenate([unknowns.linear, unknowns.output])
    changes = weights[None, first:] * (columns[:, first:] - steps.columns)

    def move(unit: Array, carry: tuple) -> tuple:
        residual, accepted, total = carry
        moved = residual + changes[:, unit]
        log_ratio = 0.5 * (residual @ residual - moved @ moved) + steps.log_priors[unit]
        accept = steps.log_uniform[unit] < log_ratio
        return jnp.where(accept, moved, residual), accepted.at[unit].set(accept), total + _probability(log_ratio)

    units = unknowns.output.shape[0]
    start = (y - columns @ weights, jnp.zeros(units, bool), 0.0 * unknowns.sigma)
    _, accepted, total = jax.lax.fori_loop(np.int32(0), np.int32(units), move, start)
    moved = jnp.concatenate([columns[:, :first], jnp.where(accepted[None], steps.columns, columns[:, first:])], axis=1)
    regression = Regression.of(moved.T @ moved, moved.T @ y, unknowns.shifts)
    hidden = jnp.where(accepted[None], steps.hidden, unknowns.hidden)
    return _Moved(Work(hidden, moved, regression, unknowns.number.astype(np.int32)), total / units)


def _log_prior(raw: Array) -> Array:
    """Log densities of units with raw weights (1 + features, units), up to a constant."""
    return -0.5 * jnp.sum(jnp.square(raw), axis=0)


def _probability(log_ratio: Scalar) -> Scalar:
    """Acceptance probability; 0 where the ratio is not a number."""
    return jnp.exp(jnp.minimum(jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio), 0.0))
