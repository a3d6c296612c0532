r"""The normal at a mode, refined for the whole distribution of the outputs instead of their values at the mode.

Where classes are separated the likelihood is flat at the mode, and the normal there is as wide as the prior. The best
normal for the linearised network averages the likelihood over its own outputs :cite:p:`immer2021improving`:

.. math::

    \Sigma^{-1} = V^{-1} + \sum_n J_n^\top E[\Lambda(f_n)] J_n, \qquad
    w \leftarrow w + \rho \, \Sigma \Big( \sum_n J_n^\top E[\nabla_f \log p(y_n \mid f_n)] - V^{-1} w \Big)

with :math:`f_n \sim N(f(x_n, w), J_n \Sigma J_n^\top)`. The network is linearised again at each mean, and a step is
kept only if the bound :math:`\sum_n E[\log p(y_n \mid f_n)] - KL(N(w, \Sigma), N(0, V))` is larger after it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from tunbridge.core.compiling import once
from tunbridge.core.data import Data
from tunbridge.core.linalg import Covariance
from tunbridge.core.types import Key, Likelihood, Logits, PyTree
from tunbridge.inference.laplace import fitting, products
from tunbridge.inference.laplace.curvatures import Outer
from tunbridge.inference.laplace.fitting import Fitted
from tunbridge.inference.laplace.gaussian import linear_moments
from tunbridge.inference.laplace.local import Local, blocks, num_outputs, summed
from tunbridge.inference.laplace.structures import Structure
from tunbridge.predict.points import normal_points

_ROUNDS = 8
_WORTH = 0.01
"""The least gain of the bound, in nats, for which another round is made."""
_SHARES = (0.7, 0.2, 0.05)
"""Shares of Newton's step that the mean tries in a round."""
_POINTS = 32
"""Number of points of a row's outputs."""
_BLOCK = 1024
_MOST_OUTPUTS = 20_000
"""The most outputs of all rows; beyond them the posterior is narrow."""


class Given(Outer):
    """A curvature whose columns the rows carry, in place of their targets."""

    def columns(self, key: Key, likelihood: Likelihood, outputs: Array, y: Array, noise: PyTree) -> Array:
        """Return the columns that the rows carry."""
        return y.reshape(*outputs.shape, -1)

    def num_columns(self, outputs: int) -> int:
        """Return `outputs`: one column per output."""
        return outputs


class Averages(NamedTuple):
    """Averages over the distribution of each row's outputs."""

    log_likelihood: Array
    gradient: Array
    """(rows, outputs)."""
    columns: Array
    """A root of the curvature, (rows, outputs * outputs)."""
    spread: Array
    """The variance of the outputs that gradient and curvature are averaged over, summed over outputs."""


class Normal(NamedTuple):
    """A normal distribution of the weights, with averages over the outputs that it gives, and its bound."""

    local: Local
    covariance: Covariance
    averages: Averages
    bound: float


class Refined(NamedTuple):
    """The normal with the largest bound, and the bounds on the way to it."""

    local: Local
    covariance: Covariance
    bounds: list[float]

    @property
    def note(self) -> str:
        """What was done, for the reader."""
        if len(self.bounds) == 1:
            return "The normal at the mode was kept: no round of refinement raised the bound of the linearised network."
        return (
            "The normal at the mode was refined for the outputs' whole distribution: the bound of the linearised "
            f"network rose from {self.bounds[0]:.1f} to {self.bounds[-1]:.1f} nats."
        )


def suits(local: Local, rows: int) -> bool:
    """Return whether refinement is for this model: classes, a normal prior, and few enough rows."""
    model = local.model
    few = rows * num_outputs(local) <= _MOST_OUTPUTS
    return isinstance(model.likelihood, Logits) and model.prior.gaussian and few


def refined(fitted: Fitted, data: Data, key: Key) -> Refined:
    """Return the normal around a mode after rounds that raise its bound."""
    structure, evidence = fitted.structure, fitted.evidence
    variances = fitting.prior_variances(evidence.local, evidence.damping)
    precisions = np.where(evidence.chosen, 1.0 / variances, 0.0).astype(jax.dtypes.canonicalize_dtype(float))

    def normal(local: Local, covariance: Covariance, spread: Any) -> Normal:
        found = averages(local, structure, covariance, data, spread)
        bound = float(np.sum(found.log_likelihood)) - float(_divergence(local, covariance, precisions))
        return Normal(local, covariance, found, bound)

    def proposals(current: Normal) -> Iterator[Normal]:
        """The covariance for the current averages, with means at several shares of Newton's step."""
        local, found = current.local, current.averages
        curved = data.with_rows(data.x, found.columns, data.weight)
        measured = structure.measure(local, Given(), curved, variances, key)
        covariance, _ = fitting.covariance_of(local, structure, measured, variances)
        pulled = data.with_rows(data.x, found.gradient, data.weight)
        gradient = summed(products.pulled_back, local, pulled, key, local.size // 64 + 1).astype(precisions.dtype)
        for share in _SHARES:
            yield normal(_moved(local, covariance, precisions, gradient, share), covariance, found.spread)

    current = normal(evidence.local, evidence.covariance, None)
    bounds = [current.bound]
    for _ in range(_ROUNDS):
        better = next((proposal for proposal in proposals(current) if proposal.bound > current.bound), None)
        if better is None:
            break
        current = better
        bounds.append(current.bound)
        if bounds[-1] - bounds[-2] < _WORTH:
            break
    return Refined(current.local, current.covariance, bounds)


def averages(local: Local, structure: Structure, covariance: Covariance, data: Data, spread: Any) -> Averages:
    """Return averages for all rows; variances are damped towards the `spread` of the round before."""
    parts, place = [], 0
    for batch in blocks(data, _BLOCK):
        num = min(data.num - place, batch.num)
        last = np.zeros(batch.num, jax.dtypes.canonicalize_dtype(float))
        if spread is not None:
            last[:num] = spread[place : place + num]
        found = _averages(local, *linear_moments(local, structure, covariance, batch.x), batch, last)
        parts.append(jax.tree.map(lambda leaf, num=num: np.asarray(leaf)[:num], found))
        place += num
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


@once
def _averages(local: Local, mean: Array, covariance: Array, batch: Data, last: Array) -> Averages:
    likelihood, noise = local.model.likelihood, local.params.noise

    def log_likelihood(mean: Array, covariance: Array) -> Array:
        points = normal_points(mean, covariance, _POINTS)
        return jnp.mean(jax.vmap(lambda f: likelihood.distribution(f, noise).log_prob(batch.y))(points), axis=0)

    new = jnp.trace(covariance, axis1=1, axis2=2)
    spread = jnp.where(last > 0.0, jnp.sqrt(last * new), new)
    damped = covariance * (spread / jnp.maximum(new, 1e-30))[:, None, None]
    gradient = jax.grad(lambda mean: jnp.sum(log_likelihood(mean, damped)))(mean)
    roots = jax.vmap(lambda f: likelihood.hessian_root(f, batch.y, noise))(normal_points(mean, damped, _POINTS))
    values, vectors = jnp.linalg.eigh(jnp.einsum("snik,snjk->nij", roots, roots) / len(roots))
    columns = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[:, None]
    return Averages(batch.weights * log_likelihood(mean, covariance), gradient, columns.reshape(len(mean), -1), spread)


@once
def _divergence(local: Local, covariance: Covariance, precisions: Array) -> Array:
    """KL from the prior: of N(w, covariance) from N(0, V), over the weights that are random."""
    weights = ravel_pytree(local.weights)[0]
    variances = jnp.where(precisions > 0.0, 1.0 / jnp.maximum(precisions, 1e-30), 1.0)
    squares = jnp.sum(precisions * (covariance.diagonal() + weights**2))
    return 0.5 * (squares - covariance.num + covariance.log_det(variances, jnp.ones(())))


@once
def _moved(local: Local, covariance: Covariance, precisions: Array, gradient: Array, share: Array) -> Local:
    """The model with its mean moved by a share of Newton's step."""
    weights, unravel = ravel_pytree(local.weights)
    pull = jnp.where(precisions > 0.0, gradient - precisions * weights, 0.0)
    moved = unravel(weights + (share * covariance.product(pull)).astype(weights.dtype))
    return Local(local.model, local.params._replace(weights=moved), local.subset)
