"""Noise of a point estimate, measured on rows that the weights have not seen.

For half of the steps the weights learn from four fifths of the rows, given noise so small that the network is free to
fit, and the noise that explains the residuals of the rest is followed along the way. Then the noise of the best moment
comes into force, and the weights are refitted to all rows. While they learn, weights never depend on the noise that is
measured: the two could drift together to where all is noise.
"""

from typing import NamedTuple

import equinox as eqx
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
"""Of the rows, held out."""
_SHRINK = 0.1
_FIRST_STEPS = 100


class Measure(NamedTuple):
    """Which rows are held out, the noise that explains them now, and the one that did best."""

    key: Key
    threshold: Array
    noise: PyTree
    score: Array
    """Mean log density of the held-out rows."""
    best_score: Array
    best_noise: PyTree

    def rows(self, batch: Data) -> Array:
        """Which rows of a batch are held out and count, (points,)."""
        counts = True if batch.weight is None else batch.weight > 0
        return (holdout.mark(self.key, batch) <= self.threshold) & counts


def begin(key: Key, target: Target, params: Params, batch: Data) -> tuple[Params, Measure]:
    """Noise a tenth of what explains the held-out residuals of the untrained network, whatever the units of y.

    Where y has no residuals (classes, counts), noise that explains the held-out rows.
    """
    likelihood, outputs = target.model.likelihood, target.model.outputs(params, batch.x)
    weight = batch.weights
    threshold = holdout.threshold(holdout.mark(key, batch), weight, SHARE, batch.num == target.num)
    start, never = likelihood.median_noise(), jnp.asarray(-jnp.inf)
    measure = Measure(key, threshold, start, never, never, start)
    held = measure.rows(batch)
    held = jnp.where(jnp.any(held), held, weight > 0)  # a small first batch may hold no row out
    shrunk = eqx.tree_at(lambda data: data.y, batch, likelihood.shrunk(batch.y, outputs, start, _SHRINK))

    def solve(rows):
        return jax.lax.fori_loop(0, _FIRST_STEPS, lambda _, u: _newton(target, outputs[None], rows, held, u), start)

    first = solve(batch)
    return params._replace(noise=solve(shrunk)), measure._replace(noise=first, best_noise=first)


def follow(measure: Measure, target: Target, outputs: Array, batch: Data) -> Measure:
    """The measure after a step: the new one if the batch is all the data, else an average over about three epochs.

    `outputs` (networks, points, outputs) are those of the networks that a prediction would average.
    """
    held, share = measure.rows(batch), batch.num / target.num
    share = share / (3.0 - 2.0 * share)
    newton = _newton(target, outputs, batch, held, measure.noise)
    noise = jax.tree.map(lambda old, new: old + share * (new - old), measure.noise, newton)
    terms = _terms(target, outputs, noise, batch.y)
    weights = held.astype(terms.dtype) if batch.weight is None else jnp.where(held, batch.weight, 0.0)
    score = jnp.sum(jnp.where(held, terms, 0.0) * weights) / jnp.maximum(jnp.sum(weights), 1e-30)
    score = jnp.where(jnp.isinf(measure.score), score, measure.score + share * (score - measure.score))
    better = score > measure.best_score
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), noise, measure.best_noise)
    fresh = Measure(measure.key, measure.threshold, noise, score, jnp.maximum(score, measure.best_score), best)
    return jax.lax.cond(jnp.any(held), lambda: fresh, lambda: measure)


def _terms(target: Target, outputs: Array, noise: PyTree, y: Array) -> Array:
    """Log density of each row under the equal mixture of the networks, (points,)."""
    each = jax.vmap(lambda one: target.model.likelihood.distribution(one, noise).log_prob(y))(outputs)
    return logsumexp(each, axis=0) - jnp.log(len(outputs))


def _newton(target: Target, outputs: Array, batch: Data, held: Array, noise: PyTree) -> PyTree:
    """One Newton step, of at most 1 in each coordinate, towards the noise that explains the held-out rows."""
    likelihood = target.model.likelihood
    start, unravel = ravel_pytree(noise)

    def loss(u):
        terms = jnp.where(held, _terms(target, outputs, unravel(u), batch.y), 0.0)
        return -(target.rescale(terms, batch) + likelihood.log_noise(unravel(u), jacobian=False))

    slope, curvature = jax.grad(loss)(start), jnp.diagonal(jax.hessian(loss)(start))
    return unravel(start - jnp.clip(slope / jnp.maximum(jnp.abs(curvature), 1e-6), -1.0, 1.0))
