"""Divergences between q and the posterior, and how the part that does not depend on the data is estimated."""

import abc
import dataclasses
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.types import Params, PyTree, Scalar
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.model.model import Model, Target


class Divergence(Module):
    """A divergence between q and the posterior, minimised by maximising a bound."""

    def bind(self, model: Model, like: Params) -> Self:
        """The divergence bound to the model: whatever depends on the model is set."""
        return self

    @abc.abstractmethod
    def sampled(self, target: Target, q: Gaussian, params: Params) -> Scalar:
        """Part of log p(params) - log q(params) that is estimated from a draw."""

    @abc.abstractmethod
    def direct(self, target: Target, q: Gaussian) -> Scalar:
        """Part of its expectation that has a closed form."""

    @abc.abstractmethod
    def bound(self, log_weights: Array) -> Scalar:
        """Bound to be maximised, from the log weights (draws,) of some draws from q."""


class KL(Divergence):
    r"""The Kullback-Leibler divergence from q to the posterior, minimised by maximising the evidence lower bound:

    .. math::

        \text{ELBO}(q) = E_q[\log p(y \mid w)] - \text{KL}(q \,\|\, p) = \log p(y) - \text{KL}(q \,\|\, p(w \mid y)).

    The KL from q to the prior is a sum over the weights, never a mean.

    Parameters
    ----------
    closed
        Use closed forms for the entropy of q and for the expected log prior of independent normal weights; False
        estimates the whole KL from draws, whatever the prior.
    """

    closed: bool = eqx.field(default=True, static=True)
    normal: bool = eqx.field(default=False, static=True)
    """Whether the expected log prior of the weights has a closed form; set when the model is known."""

    def bind(self, model: Model, like: Params) -> Self:
        """The divergence with `normal` set for the model's prior."""
        return dataclasses.replace(self, normal=self.closed and model.independent_normal(like))

    def sampled(self, target: Target, q: Gaussian, params: Params) -> Scalar:
        """Log p - log q at a draw, without the part that `direct` returns."""
        if not self.closed:
            return target.log_prior(params) - q.log_prob(params)
        if not self.normal:
            return target.log_prior(params)
        return target.log_hyper(params)

    def direct(self, target: Target, q: Gaussian) -> Scalar:
        r"""Entropy of q, and :math:`E_q \log p(w) = \log p(\mu) + \tfrac12 \sum_i \partial_i^2 \log p \; v_i`."""
        if not self.closed:
            return jnp.zeros(())
        if not self.normal:
            return q.entropy()

        def log_prior(weights: PyTree) -> Scalar:
            return target.log_prior_weights(q.mean._replace(weights=weights))

        mean, ones = q.mean.weights, jax.tree.map(jnp.ones_like, q.mean.weights)
        _, curvature = jax.jvp(jax.grad(log_prior), (mean,), (ones,))
        terms = jax.tree.map(jnp.vdot, curvature, q.variance().weights)
        return q.entropy() + log_prior(mean) + 0.5 * sum(jax.tree.leaves(terms))

    def bound(self, log_weights: Array) -> Scalar:
        """Mean of the log weights: the evidence lower bound."""
        return jnp.mean(log_weights)
