r"""Moves that change the number of hidden units, with the output weights integrated out.

The units in use are the first ones, in an order that a random permutation makes uniform before each move: the posterior
does not depend on it. Four moves are tried with probability 1/4 each, at any number of units: birth of a unit, with
weights drawn from the prior; death of the last unit; a split of the last unit in two; a merger of the last two.
A move that cannot be made is rejected. The acceptance ratios :cite:p:`green1995reversible` are

- birth: :math:`\frac{L(m + 1)}{L(m)} \frac{p(m + 1)}{p(m)}`: the prior density of the new weights is also that of
  their proposal, and birth and death are tried equally often;
- split, in raw coordinates r with :math:`r_{1,2} = r \pm \tau u` and u standard normal:
  :math:`\frac{L(m + 1)}{L(m)} \frac{p(m + 1)}{p(m)} \frac{\phi(r_1) \phi(r_2)}{\phi(r) \phi(u)} (2 \tau)^d`, where
  :math:`(2 \tau)^d` is the Jacobian of :math:`(r, u) \mapsto (r_1, r_2)`;
- death and merger: the reciprocals.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.types import Key, Scalar
from tunbridge.inference.shallow.form import Form, Rows, Unknowns, in_single
from tunbridge.inference.shallow.marginal import Regression
from tunbridge.model.priors.exchangeable import Exchangeable

_TAU = 0.3
r""":math:`\tau`, in raw coordinates."""


def jumps(key: Key, form: Form, rows: Rows, unknowns: Unknowns, regression: Regression, num: int | Array) -> Unknowns:
    """The unknowns after `num` moves; `regression` is that on all columns.

    One more unit, always left out, is where a move that changes a single unit finds its second one.
    """
    first, units = unknowns.linear.size, unknowns.output.shape[0]
    shift, prior = unknowns.shift, form.prior
    alpha = unknowns.numbers["alpha"]

    def move(i: Array, carry: tuple[Array, Regression, Array]) -> tuple[Array, Regression, Array]:
        key_order, key_kind, key_noise, key_accept = in_single(_keys, key, i)
        hidden, regression, count = carry
        hidden, regression = _permuted(key_order, hidden, regression, count, first)
        grows, pair = in_single(jax.random.bernoulli, key_kind, 0.5, (2,))
        last = jnp.where(grows, count, count - 1)
        possible = jnp.where(grows, count < units, count >= 1) & (~pair | (last >= 1))
        one = jnp.where(pair & possible, last - 1, units).astype(np.int32)
        two = jnp.where(possible, last, units).astype(np.int32)
        noise = in_single(jax.random.normal, key_noise, hidden.shape[:1])
        weights_one, weights_two, log_moves = proposed(grows, pair, hidden[:, one], hidden[:, two], noise)
        columns = form.column(unknowns, rows, jnp.stack([weights_one, weights_two], axis=1))
        rest = regression.without(first + two, shift).without(first + one, shift)

        def both(z_one: Array, z_two: Array) -> tuple[Scalar, Regression]:
            with_one = rest.with_column(first + one, z_one, shift)
            gain = rest.gain(z_one, shift) + with_one.gain(z_two, shift)
            return gain, with_one.with_column(first + two, z_two, shift)

        log_old, old = both(regression.columns[:, first + one], regression.columns[:, first + two])
        log_new, new = both(jnp.where(pair, columns[:, 0], 0.0), jnp.where(grows, columns[:, 1], 0.0))
        sign = jnp.where(grows, 1.0, -1.0)
        log_ratio = log_new - log_old + sign * log_of_more(prior, jnp.where(grows, count, count - 1), alpha) + log_moves
        accept = possible & (jnp.log(in_single(jax.random.uniform, key_accept)) < log_ratio)
        moved = hidden.at[:, one].set(weights_one).at[:, two].set(weights_two)
        return (
            jnp.where(accept, moved, hidden),
            jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, old),
            count + jnp.where(accept, jnp.where(grows, 1, -1), 0),
        )

    wide = jnp.pad(unknowns.hidden, ((0, 0), (0, 1)))
    start = (wide, _padded(regression), unknowns.number.astype(np.int32))
    hidden, _, count = jax.lax.fori_loop(np.int32(0), jnp.asarray(num, np.int32), move, start)
    return unknowns._replace(hidden=hidden[:, :-1], number=count.astype(unknowns.number.dtype))


def _keys(key: Key, move: Array) -> Key:
    return jax.random.split(jax.random.fold_in(key, move), 4)


def log_of_more(prior: Exchangeable, count: Array, alpha: Scalar) -> Scalar:
    """Log prior probability of one unit more than `count`, relative to that of `count`."""
    return prior.log_count(count + 1, alpha) - prior.log_count(count, alpha)


def proposed(grows: Array, pair: Array, one: Array, two: Array, noise: Array) -> tuple[Array, Array, Scalar]:
    """Raw weights of two units after a move, and the log of what its ratio holds besides likelihoods and p(m).

    A birth gives `noise` to the second unit, a split parts the first, a merger joins both in the first.
    """
    first, second = one + _TAU * noise, one - _TAU * noise
    middle, apart = 0.5 * (one + two), (one - two) / (2.0 * _TAU)
    log_moves = jnp.where(grows, log_split(one, noise), -log_split(middle, apart))
    split = jnp.where(pair, second, noise)
    return (
        jnp.where(pair, jnp.where(grows, first, middle), one),
        jnp.where(grows, split, two),
        jnp.where(pair, log_moves, 0.0),
    )


def log_split(raw: Array, noise: Array) -> Scalar:
    r""":math:`\log \phi(r + \tau u) \phi(r - \tau u) / (\phi(r) \phi(u)) + d \log 2 \tau`."""

    def phi(r: Array) -> Scalar:
        return jnp.sum(jax.scipy.stats.norm.logpdf(r))

    densities = phi(raw + _TAU * noise) + phi(raw - _TAU * noise) - phi(raw) - phi(noise)
    return densities + log_jacobian(raw.shape[0])


def log_jacobian(size: int) -> float | Array:
    r"""Log determinant of :math:`(r, u) \mapsto (r + \tau u, r - \tau u)` for vectors of this size."""
    return size * jnp.log(2.0 * _TAU)


def _permuted(key: Key, hidden: Array, regression: Regression, count: Array, first: int) -> tuple[Array, Regression]:
    """The units in use in random order; the others stay behind them."""
    units = jnp.arange(hidden.shape[1], dtype=np.int32)
    order = jnp.argsort(jnp.where(units < count, in_single(jax.random.uniform, key, units.shape), 1.0 + units)).astype(
        np.int32
    )
    columns = jnp.concatenate([jnp.arange(first, dtype=np.int32), first + order])
    inverse = regression.inverse[columns][:, columns]
    return hidden[:, order], Regression(regression.columns[:, columns], regression.residual, inverse)


def _padded(regression: Regression) -> Regression:
    """The regression with a further column of zeros."""
    inverse = jnp.pad(regression.inverse, ((0, 1), (0, 1))).at[-1, -1].set(1.0)
    return Regression(jnp.pad(regression.columns, ((0, 0), (0, 1))), regression.residual, inverse)
