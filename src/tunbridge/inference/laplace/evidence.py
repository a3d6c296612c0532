r"""The evidence of a normal approximation, as a function of prior scales and noise.

.. math::

    \log p(y) \approx \log p(y \mid \hat w, \sigma) + \log p(\hat w \mid s) + \tfrac d2 \log 2\pi
    - \tfrac12 \log \det (H(\sigma) + V(s)^{-1})

with H the curvature of minus the log likelihood alone: the prior enters once.
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
"""How far a round may move an unknown on the real line: a factor of e of a positive one."""
_STEP = 0.2


class Rows(NamedTuple):
    """The network's outputs at the mode, and the targets they answer to."""

    outputs: Array
    y: Array
    weight: Array


class LogEvidence(Module):
    """Log p(y) around one mode."""

    local: Local
    rows: Rows
    covariance: Covariance
    curvature: Curvature
    chosen: Array
    """Which weights are random."""
    damping: Array

    def __call__(self, scales: PyTree, noise: PyTree) -> Scalar:
        """Log p(y | scales, noise) with all constants."""
        variances = self.local.variances(scales)
        determinant = self.covariance.log_det(variances / (1.0 + self.damping), self.factor(noise))
        return self.log_likelihood(noise) + self._prior(scales, variances) - 0.5 * determinant

    def objective(self, scales: PyTree, noise: PyTree) -> Scalar:
        """Log evidence plus the log densities of what is unknown."""
        model = self.local.model
        hyper = model.prior.log_hyper(scales, jacobian=False) + model.likelihood.log_noise(noise, jacobian=False)
        return self(scales, noise) + hyper

    def log_likelihood(self, noise: PyTree) -> Scalar:
        """At the mode."""
        terms = self.local.model.likelihood.distribution(self.rows.outputs, noise).log_prob(self.rows.y)
        return jnp.sum(self.rows.weight * terms)

    def factor(self, noise: PyTree) -> Scalar:
        """How much larger the curvature is with this noise than with the mode's: exact where noise is one scale."""
        return self._trace(noise) / self._trace(self.local.params.noise) if noise else jnp.ones(())

    def _trace(self, noise: PyTree) -> Scalar:
        columns = self.columns(noise)
        return jnp.sum(self.rows.weight * jnp.sum(columns**2, axis=(1, 2)))

    def columns(self, noise: PyTree) -> Array:
        """Of the curvature in the outputs, (points, outputs, columns)."""
        curvature = self.curvature if isinstance(self.curvature, Outer) else GGN()
        likelihood, key = self.local.model.likelihood, jax.random.key(0)
        return curvature.columns(key, likelihood, self.rows.outputs, self.rows.y, noise)

    def _prior(self, scales: PyTree, variances: Array) -> Scalar:
        r""":math:`\log p(\hat w) + \frac d2 \log 2\pi + \frac12 \log \det V` of the weights that are random."""
        model, params = self.local.model, self.local.params
        weights = ravel_pytree(self.local.weights)[0]
        if model.prior.gaussian:
            return -0.5 * jnp.sum(jnp.where(self.chosen, weights**2 / variances, 0.0))
        layout = model.network.layout(params.weights)
        raw = model.prior.raw(self.local.weights, scales, layout)
        ones = jax.tree.map(jnp.ones_like, raw)
        slope = jax.jvp(lambda r: model.prior.weights(r, scales, layout), (raw,), (ones,))[1]
        density = model.prior.log_prob(raw, scales, layout) - jnp.sum(jnp.log(jnp.abs(ravel_pytree(slope)[0])))
        return density + 0.5 * jnp.sum(jnp.log(2.0 * jnp.pi * variances))


@once
def values(evidence: LogEvidence, scales: PyTree, noise: PyTree) -> tuple[Scalar, Scalar]:
    """The log evidence, and with the log densities of what is unknown."""
    return evidence(scales, noise), evidence.objective(scales, noise)


class Tuned(NamedTuple):
    """Where the evidence, with the priors of what is unknown, is largest."""

    scales: PyTree
    noise: PyTree
    at_bound: Array
    """How many unknowns went as far as a round allows."""


@once
def maximise(evidence: LogEvidence, drift: Array, with_noise: Array, steps: Array) -> Tuned:
    """Adam on the real line, with a step that falls to nothing.

    Parameters
    ----------
    evidence
        Around one mode.
    drift
        The gradient that the evidence has besides, because the mode moves with the unknowns; see `fitting.drift`.
    with_noise
        Whether noise is tuned too, or stays where it is.
    steps
        How many.
    """
    params = evidence.local.params
    start, back = ravel_pytree((params.scales, params.noise))
    moves = jnp.arange(len(start)) < len(start) - len(ravel_pytree(params.noise)[0])
    optimiser = optax.scale_by_adam(b2=0.9)

    def turn(step: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        real, memory = carry
        slope = jax.grad(lambda u: -evidence.objective(*back(u)) - drift @ u)(real)
        slope = jnp.where(jnp.isfinite(slope) & (moves | with_noise), slope, 0.0)
        update, memory = optimiser.update(slope, memory)
        pace = _STEP * 0.5 * (1.0 + jnp.cos(jnp.pi * step / steps))
        return jnp.clip(real - pace * update, start - _REACH, start + _REACH), memory

    real, _ = jax.lax.fori_loop(0, steps, turn, (start, optimiser.init(start)))
    scales, noise = back(real)
    return Tuned(scales, noise, jnp.sum(jnp.abs(real - start) >= 0.999 * _REACH))
