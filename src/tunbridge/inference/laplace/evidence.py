r"""The evidence of a normal approximation, as a function of prior scales and noise.

.. math::

    \log p(y) \approx \log p(y \mid \hat w, \sigma) + \log p(\hat w \mid s) + \tfrac d2 \log 2\pi
    - \tfrac12 \log \det (H(\sigma) + V(s)^{-1})

with H the curvature of minus the log likelihood alone: the prior enters once. With a subset of the weights, w are its d
weights alone: the others are given, and neither their prior nor their number enters.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from tunbridge.core.compiling import once
from tunbridge.core.declared import Module
from tunbridge.core.linalg import Covariance
from tunbridge.core.types import PyTree, Scalar
from tunbridge.inference.laplace.curvatures import GGN, Curvature, Outer
from tunbridge.inference.laplace.local import Local

_REACH = 1.0
"""How far a round may move an unknown on the real line: for a positive one, by a factor of e."""
_STEP = 0.2


class Rows(NamedTuple):
    """The network's outputs at the mode, with targets and weights of the rows."""

    outputs: Array
    y: Array
    weight: Array


class LogEvidence(Module):
    """Laplace's approximation of log p(y) around one mode, as a function of prior scales and noise."""

    local: Local
    rows: Rows
    covariance: Covariance
    curvature: Curvature
    chosen: Array
    """Mask of the weights that are random."""
    damping: Array

    def __call__(self, scales: PyTree, noise: PyTree) -> Scalar:
        """Return log p(y | scales, noise), all constants included."""
        variances = self.local.variances(scales)
        determinant = self.covariance.log_det(variances / (1.0 + self.damping), self.factor(noise))
        prior = jnp.sum(jnp.where(self.chosen, self.local.log_heights(scales), 0.0))
        return self.log_likelihood(noise) + prior - 0.5 * determinant

    def objective(self, scales: PyTree, noise: PyTree) -> Scalar:
        """Return the log evidence plus the log prior density of the unknown scales and noise."""
        model = self.local.model
        hyper = model.prior.log_hyper(scales, jacobian=False) + model.likelihood.log_noise(noise, jacobian=False)
        return self(scales, noise) + hyper

    def log_likelihood(self, noise: PyTree) -> Scalar:
        """Return the log likelihood of all rows at the mode."""
        terms = self.local.model.likelihood.distribution(self.rows.outputs, noise).log_prob(self.rows.y)
        return jnp.sum(self.rows.weight * terms)

    def factor(self, noise: PyTree) -> Scalar:
        """Return the ratio of the curvature with this noise to that with the mode's; exact if noise is one scale."""
        return self._trace(noise) / self._trace(self.local.params.noise) if noise else jnp.ones(())

    def _trace(self, noise: PyTree) -> Scalar:
        columns = self.columns(noise)
        return jnp.sum(self.rows.weight * jnp.sum(columns**2, axis=(1, 2)))

    def columns(self, noise: PyTree) -> Array:
        """Return the columns of the curvature in the outputs, (points, outputs, columns)."""
        curvature = self.curvature if isinstance(self.curvature, Outer) else GGN()
        likelihood, key = self.local.model.likelihood, jax.random.key(0)
        return curvature.columns(key, likelihood, self.rows.outputs, self.rows.y, noise)


@once
def values(evidence: LogEvidence, scales: PyTree, noise: PyTree) -> tuple[Scalar, Scalar]:
    """Return the log evidence, and the log evidence plus the log prior density of the unknowns."""
    return evidence(scales, noise), evidence.objective(scales, noise)


class Tuned(NamedTuple):
    """The scales and noise that maximise the evidence times their prior density."""

    scales: PyTree
    noise: PyTree
    at_bound: Array
    """Number of unknowns that moved as far as one round allows."""


@once
def maximise(evidence: LogEvidence, drift: Array, with_noise: Array, steps: Array) -> Tuned:
    """Maximise the evidence by Adam on the real line, with a step size that falls to zero.

    Parameters
    ----------
    evidence
        The evidence around one mode.
    drift
        An additional gradient of the evidence, because the mode moves with the unknowns; see `fitting.drift`.
    with_noise
        Whether noise is tuned too.
    steps
        Number of Adam steps.
    """
    params = evidence.local.params
    start, unravel = ravel_pytree((params.scales, params.noise))
    moves = jnp.arange(len(start)) < len(start) - len(ravel_pytree(params.noise)[0])
    optimiser = optax.scale_by_adam(b2=0.9)

    def iterate(step: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        real, memory = carry
        gradient = jax.grad(lambda u: -evidence.objective(*unravel(u)) - drift @ u)(real)
        gradient = jnp.where(jnp.isfinite(gradient) & (moves | with_noise), gradient, 0.0)
        update, memory = optimiser.update(gradient, memory)
        pace = _STEP * 0.5 * (1.0 + jnp.cos(jnp.pi * step / steps))
        return jnp.clip(real - pace * update, start - _REACH, start + _REACH), memory

    real, _ = jax.lax.fori_loop(0, steps, iterate, (start, optimiser.init(start)))
    scales, noise = unravel(real)
    return Tuned(scales, noise, jnp.sum(jnp.abs(real - start) >= 0.999 * _REACH))
