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
from tunbridge.inference.shallow.form import Form, Rows, Unknowns, in_double, in_single
from tunbridge.inference.shallow.marginal import Regression
from tunbridge.model.model import Target

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
        log_scale = adapted(self.log_scale, self.step, self.warmup, swept.acceptance, jnp.asarray(acceptance))
        nan = jnp.full_like(log_density, jnp.nan)
        info = Info.of(log_density, swept.acceptance, jnp.asarray(False), nan, swept.evaluations)
        return ShallowState(ravel(params), log_scale, self.step + 1, self.warmup), info


class Swept(NamedTuple):
    """The outcome of a sweep."""

    unknowns: Unknowns
    acceptance: Scalar
    """The mean acceptance probability of hidden units."""
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
    if integrated:
        regression = form.regression(unknowns, rows)
        unknowns, regression, acceptance = _integrated(key_hidden, form, rows, unknowns, regression, scale)
        if num is not None:
            unknowns = jump.jumps(key_jumps, form, rows, unknowns, regression, num)
    else:
        unknowns, acceptance = _given(key_hidden, form, rows, unknowns, scale)
    return *draw_coefficients(key_output, form, rows, unknowns), acceptance


def adapted(log_scale: Scalar, step: Array, warmup: Array, acceptance: Scalar, goal: Scalar) -> Scalar:
    """The logarithm of the step size after a step, moved towards the goal during warm-up."""
    gain = jnp.power(1.0 + step, -_FORGETTING)
    return jnp.where(step < warmup, log_scale + gain * (acceptance - goal), log_scale)


def draw_coefficients(key: Key, form: Form, rows: Rows, unknowns: Unknowns) -> tuple[Unknowns, Array]:
    """Draw linear and output weights given the rest; also returns the residuals y - f(x), (points,)."""
    columns, residual = form.columns(unknowns, rows)
    mean, covariance = conditionals.coefficients(columns, residual)
    normal = in_single(jax.random.normal, key, mean.shape)
    drawn = mean + jnp.linalg.cholesky(covariance) @ normal
    size = unknowns.linear.size
    rest = jnp.where(rows.root > 0.0, (residual - columns @ drawn) / jnp.where(rows.root > 0.0, rows.root, 1.0), 0.0)
    return unknowns._replace(linear=drawn[:size], output=drawn[size:]), rest * unknowns.sigma


def _integrated(
    key: Key, form: Form, rows: Rows, unknowns: Unknowns, regression: Regression, scale: Scalar
) -> tuple[Unknowns, Regression, Scalar]:
    """Metropolis steps of the units in use, one by one, with the coefficients integrated out."""
    first, shift = unknowns.linear.size, unknowns.shift

    def move(unit: Array, carry: tuple) -> tuple:
        hidden, regression, accepted = carry
        key_unit, key_accept = in_single(_unit_keys, key, unit)
        now = hidden[:, unit]
        proposal = _proposed(key_unit, now, scale)
        old, new = regression.columns[:, first + unit], form.column(unknowns, rows, proposal[:, None])[:, 0]
        rest = regression.without(first + unit, shift)
        log_ratio = rest.gain(new, shift) - rest.gain(old, shift) + _log_prior(proposal) - _log_prior(now)
        probability = _probability(log_ratio)
        accept = in_single(jax.random.uniform, key_accept) < probability
        hidden = hidden.at[:, unit].set(jnp.where(accept, proposal, now))
        return hidden, rest.with_column(first + unit, jnp.where(accept, new, old), shift), accepted + probability

    start = (unknowns.hidden, regression, jnp.zeros_like(scale))
    hidden, regression, accepted = jax.lax.fori_loop(np.int32(0), unknowns.number.astype(np.int32), move, start)
    return unknowns._replace(hidden=hidden), regression, accepted / jnp.maximum(unknowns.number, 1.0)


def _given(key: Key, form: Form, rows: Rows, unknowns: Unknowns, scale: Scalar) -> tuple[Unknowns, Scalar]:
    """Metropolis steps of all units, one by one, given the coefficients."""
    columns, residual = form.columns(unknowns, rows)
    first = unknowns.linear.size
    residual = residual - columns @ jnp.concatenate([unknowns.linear, unknowns.output])

    def move(unit: Array, carry: tuple) -> tuple:
        hidden, residual, accepted = carry
        key_unit, key_accept = in_single(_unit_keys, key, unit)
        now, weight = hidden[:, unit], unknowns.shift + unknowns.output[unit]
        proposal = _proposed(key_unit, now, scale)
        new = form.column(unknowns, rows, proposal[:, None])[:, 0]
        moved = residual + weight * (columns[:, first + unit] - new)
        change = 0.5 * (jnp.sum(jnp.square(residual)) - jnp.sum(jnp.square(moved)))
        probability = _probability(change + _log_prior(proposal) - _log_prior(now))
        accept = in_single(jax.random.uniform, key_accept) < probability
        hidden = hidden.at[:, unit].set(jnp.where(accept, proposal, now))
        return hidden, jnp.where(accept, moved, residual), accepted + probability

    start = (unknowns.hidden, residual, jnp.zeros_like(scale))
    hidden, _, accepted = jax.lax.fori_loop(np.int32(0), np.int32(unknowns.output.shape[0]), move, start)
    return unknowns._replace(hidden=hidden), accepted / unknowns.output.shape[0]


def _proposed(key: Key, now: Array, scale: Scalar) -> Array:
    """A normal step around the current raw weights, of a random size, which is drawn independently of them."""
    key_size, key_step = in_single(jax.random.split, key)
    size = scale * jnp.exp(in_single(jax.random.normal, key_size))
    return now + size * in_single(jax.random.normal, key_step, now.shape)


def _unit_keys(key: Key, unit: Array) -> Key:
    return jax.random.split(jax.random.fold_in(key, unit))


def _log_prior(raw: Array) -> Scalar:
    """Log density of raw weights, up to a constant."""
    return -0.5 * jnp.sum(jnp.square(raw))


def _probability(log_ratio: Scalar) -> Scalar:
    """Acceptance probability; 0 where the ratio is not a number."""
    return jnp.exp(jnp.minimum(jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio), 0.0))
