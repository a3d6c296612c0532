"""Noise of a point estimate, measured on rows that the weights were not trained on.

Training has three stages of equal length, and in the first two a fifth of the rows is held out. In the first the noise
is fixed so small that the network is free to fit, while a running estimate tracks the noise that explains the residuals
of the held-out rows; its value with the best held-out log density regularises the second stage, in which the network is
trained as the final one will be. What explains the held-out residuals at its end is the measured noise, with which the
weights are refitted to all rows. Noise is fed back to the weights once only: otherwise both could drift to a fit that
explains all as noise.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.special import logsumexp

from tunbridge.core.data import Data
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.point import holdout
from tunbridge.model.model import Target

SHARE = 0.2
"""Share of the rows that is held out."""
_SHRINK = 0.1
_FIRST_STEPS = 100


class Stages(NamedTuple):
    """The steps at which the second stage and the refit to all rows begin."""

    second: Any
    refit: Any

    @classmethod
    def of(cls, steps: Any, measures: bool) -> "Stages":
        """Return three equal stages; if no noise is measured, a refit from the first step."""
        return cls(steps // 3, 2 * steps // 3) if measures else cls(0, 0)

    def place(self, step: Any, steps: Any) -> tuple[Any, Any]:
        """Return the first step of the current stage, and its length."""
        begins = jnp.where(step >= self.refit, self.refit, jnp.where(step >= self.second, self.second, 0))
        ends = jnp.where(step >= self.refit, steps, jnp.where(step >= self.second, self.refit, self.second))
        return begins, ends - begins


class Measure(NamedTuple):
    """Which rows are held out, the current estimate of the noise that explains them, and the first stage's best."""

    salt: Array
    """The key of the hash by which rows are held out; see `holdout.salt`."""
    threshold: Array
    noise: PyTree
    score: Array
    """Mean log density of the held-out rows."""
    best_score: Array
    best_noise: PyTree
    """The estimate with the best score in the first stage."""

    def rows(self, batch: Data) -> Array:
        """Mask of the batch's held-out rows of positive weight, (points,)."""
        counts = True if batch.weight is None else batch.weight > 0
        return (holdout.mark(self.salt, batch) <= self.threshold) & counts


def begin(key: Key, target: Target, params: Params, batch: Data) -> tuple[Params, Measure]:
    """Return parameters whose noise is small, and the initial measure.

    The noise is a tenth of what explains the held-out residuals of the untrained network, whatever the units of y. If y
    has no residuals (classes, counts), it is what explains the held-out rows.
    """
    likelihood, outputs = target.model.likelihood, target.model.outputs(params, batch.x)
    start, weight, salt = params.noise, batch.weights, holdout.salt(key, batch)
    threshold = holdout.threshold(holdout.mark(salt, batch), weight, SHARE, batch.num == target.num)
    never = jnp.asarray(-jnp.inf)
    measure = Measure(salt, threshold, start, never, never, start)
    held = measure.rows(batch)
    held = jnp.where(jnp.any(held), held, weight > 0)  # a small first batch may hold no row out
    targets = jnp.stack([batch.y, likelihood.shrunk(batch.y, outputs, start, _SHRINK)])

    def solve(y):
        rows = batch.with_rows(batch.x, y, batch.weight, batch.count)
        return jax.lax.fori_loop(0, _FIRST_STEPS, lambda _, u: _newton(target, outputs[None], rows, held, u)[2], start)

    both = jax.lax.map(solve, targets)
    first, small = (jax.tree.map(lambda leaf, i=i: leaf[i], both) for i in range(2))
    return params._replace(noise=small), measure._replace(noise=first, best_noise=first)


def follow(measure: Measure, target: Target, outputs: Array, batch: Data, held: Array, first: Array) -> Measure:
    """Return the measure after a step: the new estimate if the batch is all data, else an average over ~3 epochs.

    `outputs` (networks, points, outputs) are those of the networks that a prediction would average, `held` the mask of
    the batch's held-out rows, `first` whether this is the first stage, whose best estimate is remembered.
    """
    share = batch.num / target.num
    share = share / (3.0 - 2.0 * share)
    total, score, newton = _newton(target, outputs, batch, held, measure.noise)
    score = jnp.where(jnp.isinf(measure.score), score, measure.score + share * (score - measure.score))
    noise = jax.tree.map(lambda old, new: old + share * (new - old), measure.noise, newton)
    better = first & (score > measure.best_score)
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), measure.noise, measure.best_noise)
    best_score = jnp.where(better, score, measure.best_score)
    fresh = measure._replace(noise=noise, score=score, best_score=best_score, best_noise=best)
    return jax.tree.map(lambda new, old: jnp.where(total > 0.0, new, old), fresh, measure)


def _newton(target: Target, outputs: Array, batch: Data, held: Array, noise: PyTree) -> tuple[Array, Array, PyTree]:
    """The held-out rows' weight and mean log density, and the noise after one Newton step on their log density.

    The step is at most 1 in each coordinate. Both derivatives along each coordinate are computed in forward mode, row
    by row, and one matrix product sums them over the rows, which keeps the program small.
    """
    likelihood = target.model.likelihood
    start, unravel = ravel_pytree(noise)
    weight = jnp.where(held, batch.weights, 0.0)

    def along(direction: Array) -> tuple[Array, Array]:
        def value(t: Array) -> tuple[Array, Array]:
            u = unravel(start + t * direction)
            return _terms(target, outputs, u, batch.y), likelihood.log_noise(u, jacobian=False)

        def derivative(t: Array) -> tuple[Any, Any]:
            return jax.jvp(value, (t,), (jnp.ones_like(t),))

        zero = jnp.zeros((), start.dtype)
        ((terms, _), (first, prior_first)), (_, (second, prior_second)) = jax.jvp(
            derivative, (zero,), (jnp.ones_like(zero),)
        )
        rows = jnp.stack([jnp.ones_like(terms), terms, first, second])
        sums = jnp.matmul(jnp.where(held[None], rows, 0.0), weight, precision="highest")
        return sums, target.num / batch.num * sums[2:] + jnp.stack([prior_first, prior_second])

    sums, derivatives = jax.vmap(along)(jnp.eye(start.size, dtype=start.dtype))
    step = jnp.clip(derivatives[:, 0] / jnp.maximum(jnp.abs(derivatives[:, 1]), 1e-6), -1.0, 1.0)
    total, fit = sums[0, 0], sums[0, 1]
    return total, fit / jnp.maximum(total, 1e-30), unravel(start + step)


def _terms(target: Target, outputs: Array, noise: PyTree, y: Array) -> Array:
    """Log density of each row under the equally weighted mixture of the networks, (points,)."""
    each = jax.vmap(lambda f: target.model.likelihood.distribution(f, noise).log_prob(y))(outputs)
    return each[0] if len(each) == 1 else logsumexp(each, axis=0) - jnp.log(len(outputs))
