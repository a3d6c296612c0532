"""Bayes by Backprop, as published."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.random import split
from tunbridge.core.types import Key, Params, Scalar
from tunbridge.inference.promises import Promises, Spreads
from tunbridge.inference.vi import families
from tunbridge.inference.vi.divergences import KL, Divergence
from tunbridge.inference.vi.families import Family
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.inference.vi.positive import softplus, sum_log
from tunbridge.inference.vi.spreads import LOG_2PI, Diagonal, Spread
from tunbridge.inference.vi.variational import Variational
from tunbridge.model.model import Target


class BayesByBackprop(Variational):
    r"""Bayes by Backprop :cite:p:`blundell2015weight`: mean-field with the KL estimated from the same draw, any prior.

    With :math:`\varepsilon \sim N(0, I)`, :math:`w = \mu + \log(1 + e^\rho) \circ \varepsilon` and
    :math:`f(w, \theta) = \log q(w \mid \theta) - \log p(w) - \log p(D \mid w)`, a step follows

    .. math::

        \Delta_\mu = \frac{\partial f}{\partial w} + \frac{\partial f}{\partial \mu}, \qquad
        \Delta_\rho = \frac{\partial f}{\partial w} \circ \frac{\varepsilon}{1 + e^{-\rho}}
        + \frac{\partial f}{\partial \rho}.

    The paper's prior is ``priors.TwoNormals``, its optimiser ``optax.sgd``, its KL weights
    ``klweights.Geometric()``, and its means start at random, ``point=None``, with one draw per step; the defaults here
    are Adam, equal weights, a start at the posterior mode and four draws: the noise of the gradients of a single draw
    ends as many steps in a looser fit.

    Parameters
    ----------
    kl_weights, num_samples, step_size, optimiser, decay, point, initial_sd, train
        As for `tunbridge.MeanField`.
    """

    promises: ClassVar[Promises] = {  # independent weights
        "linear": ("diagonal", 0.12),
        "linear_unknown": ("mean", 0.2),
        "logistic": ("mean", 0.2),
        "tanh_unit": ("mean", 0.5),
    }
    spreads: ClassVar[Spreads] = {"numbers": (0.8, 2.04), "classes": (0.8, 1.3)}

    num_samples: int = eqx.field(default=4, static=True, kw_only=True)
    divergence: Divergence = eqx.field(default=KL(closed=False), kw_only=True)

    @property
    def form(self) -> Family:
        """A diagonal covariance, of independent unknowns."""
        return families.Diagonal()

    def loss_and_gradient(
        self, key: Key, target: Target, q: Gaussian, batch: Data, share: Array
    ) -> tuple[Scalar, Gaussian]:
        """F / N and the paper's updates, averaged over draws."""
        if self.num_samples == 1:
            return self._deltas(key, target, q, batch, share)
        keys = split(key, self.num_samples)
        each = jax.vmap(lambda key_draw: self._deltas(key_draw, target, q, batch, share))(keys)
        return jax.tree.map(lambda leaf: jnp.mean(leaf, 0), each)

    def _deltas(self, key: Key, target: Target, q: Gaussian, batch: Data, share: Array) -> tuple[Scalar, Gaussian]:
        """F / N at a draw, and both deltas.

        The gradients of log q are -epsilon / sigma with respect to w and epsilon / sigma with respect to mu, whose sum
        is 0, and (epsilon^2 - 1) / sigma with respect to sigma, to which epsilon times the first is added: -1 / sigma.
        """

        def loss(w: Params) -> Scalar:
            return -(share * target.log_prior(w) + target.log_likelihood(w, batch)) / target.num

        noise = q.noise(key)
        sigmas = [softplus(spread.rho) for spread in q.spreads]
        means, structure = jax.tree.flatten(q.mean)
        w = [mu + sigma * epsilon for mu, sigma, epsilon in zip(means, sigmas, noise, strict=True)]
        value, by_w = jax.value_and_grad(loss)(jax.tree.unflatten(structure, w))
        share = share / target.num

        def by_rho(spread: Spread, sigma: Array, epsilon: Array, gradient: Array) -> Diagonal:
            return Diagonal((gradient * epsilon - share / sigma) * jax.nn.sigmoid(spread.rho))

        spreads = tuple(map(by_rho, q.spreads, sigmas, noise, jax.tree.leaves(by_w)))
        log_q = sum(
            -0.5 * (jnp.vdot(epsilon, epsilon) + sigma.size * LOG_2PI) - sum_log(sigma)
            for sigma, epsilon in zip(sigmas, noise, strict=True)
        )
        return value + share * log_q, Gaussian(by_w, spreads, q.groups)
