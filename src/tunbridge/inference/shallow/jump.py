r"""Moves that change the number of hidden units, with the output weights integrated out.

The units in use are the first ones; the posterior does not depend on their order. Four moves are tried with
probability 1/4 each, at any number of units: birth of a unit behind the others, with weights drawn from the prior;
death of the last unit; a split of a unit in two, the second behind the others; a merger of the last unit with
another. Before a death or a merger a random unit becomes the last one. A move that cannot be made is rejected. The
acceptance ratios :cite:p:`green1995reversible` are

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
from tunbridge.inference.shallow.form import Form, Rows, Unknowns, Work, in_single
from tunbridge.inference.shallow.marginal import Column, Regression
from tunbridge.model.priors.exchangeable import Exchangeable

_TAU = 0.3
r""":math:`\tau`, in raw coordinates."""


def jumps(key: Key, form: Form, rows: Rows, unknowns: Unknowns, work: Work, num: int | Array) -> Work:
    """The hidden units after `num` moves.

    One more unit, always left out, is where a move that changes a single unit finds its second one.
    """
    first, units = unknowns.linear.size, unknowns.output.shape[0]
    alpha, y = unknowns.numbers["alpha"], rows.whitened(unknowns.sigma)

    def move(i: Array, work: Work) -> Work:
        noise, uniform = in_single(_drawn, key, i, work.hidden.shape[0])
        grows, pair = uniform[0] < 0.5, uniform[1] < 0.5
        count = work.number
        others = jnp.where(grows, count, jnp.maximum(count - 1, 0))
        possible = jnp.where(grows, count < units, count >= 1) & (~pair | (others >= 1))
        work = _swapped(work, jnp.where(grows, count, _one_of(count, uniform[2])), others, first)
        one = jnp.where(pair & possible, _one_of(others, uniform[3]), units)
        two = jnp.where(possible, others, units)
        hidden, columns, regression, _ = work
        *weights, log_moves = proposed(grows, pair, hidden[:, one], hidden[:, two], noise)
        made = form.column(unknowns, rows, jnp.stack(weights, axis=1))
        pairs = jnp.stack([jnp.where(pair, made[:, 0], 0.0), jnp.where(grows, made[:, 1], 0.0)], axis=1)
        cross = (columns.T @ pairs).at[first + jnp.stack([one, two])].set(0.0)
        squares, targets = pairs.T @ pairs, y @ pairs
        new_one = Column(cross[:, 0], squares[0, 0], targets[0])
        new_two = Column(cross[:, 1].at[first + one].set(squares[0, 1]), squares[1, 1], targets[1])
        without_two = regression.without(first + two)
        rest = without_two.without(first + one)
        old_one, old_two = without_two.column(first + one), regression.column(first + two)
        log_old = rest.gain(first + one, old_one) + without_two.gain(first + two, old_two)
        with_one = rest.with_column(first + one, new_one)
        log_new = rest.gain(first + one, new_one) + with_one.gain(first + two, new_two)
        log_prior = jnp.where(grows, 1.0, -1.0) * log_prior_ratio(form.prior, others, alpha)
        accept = possible & (jnp.log(uniform[4]) < log_new - log_old + log_prior + log_moves)
        moved = Work(
            hidden.at[:, one].set(weights[0]).at[:, two].set(weights[1]),
            columns.at[:, first + one].set(pairs[:, 0]).at[:, first + two].set(pairs[:, 1]),
            with_one.with_column(first + two, new_two),
            count + jnp.where(grows, 1, -1),
        )
        return jax.tree.map(lambda a, b: jnp.where(accept, a, b), moved, work)

    moved = jax.lax.fori_loop(np.int32(0), jnp.asarray(num, np.int32), move, _widened(work))
    regression = jax.tree.map(lambda leaf: leaf[(slice(-1),) * leaf.ndim], moved.regression)
    return Work(moved.hidden[:, :-1], moved.columns[:, :-1], regression, moved.number)


def _drawn(key: Key, move: Array, size: int) -> tuple[Array, Array]:
    """Normal variables (size,) and uniform ones for one move."""
    key_noise, key_uniform = jax.random.split(jax.random.fold_in(key, move))
    return jax.random.normal(key_noise, (size,)), jax.random.uniform(key_uniform, (5,))


def _one_of(count: Array, uniform: Array) -> Array:
    """One of the first units, at random; 0 if there is none."""
    return jnp.clip((uniform * count).astype(np.int32), 0, jnp.maximum(count - 1, 0))


def log_prior_ratio(prior: Exchangeable, count: Array, alpha: Scalar) -> Scalar:
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


def _swapped(work: Work, one: Array, two: Array, first: int) -> Work:
    """The work with two units in each other's place."""
    units = jnp.arange(work.hidden.shape[1], dtype=np.int32)
    units = units.at[one].set(two).at[two].set(one)
    order = jnp.concatenate([jnp.arange(first, dtype=np.int32), first + units])
    regression = jax.tree.map(lambda leaf: leaf[order], work.regression)
    regression = regression._replace(gram=regression.gram[:, order], inverse=regression.inverse[:, order])
    return Work(work.hidden[:, units], work.columns[:, order], regression, work.number)


def _widened(work: Work) -> Work:
    """The work with a further unit that is left out."""
    gram, targets, shifts, inverse = (jnp.pad(leaf, ((0, 1),) * leaf.ndim) for leaf in work.regression)
    shifts, inverse = shifts.at[-1].set(shifts[-2]), inverse.at[-1, -1].set(1.0)
    hidden, columns = (jnp.pad(leaf, ((0, 0), (0, 1))) for leaf in (work.hidden, work.columns))
    return Work(hidden, columns, Regression(gram, targets, shifts, inverse), work.number)
