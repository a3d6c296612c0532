"""Bayes by Backprop, as its authors write it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.types import Key, Params, Scalar
from tunbridge.inference.vi import families
from tunbridge.inference.vi.around import Start
from tunbridge.inference.vi.divergences import KL, Divergence
from tunbridge.inference.vi.families import Family
from tunbridge.inference.vi.gaussian import Diagonal, Gaussian
from tunbridge.inference.vi.variational import Variational
from tunbridge.model.model import Target


class BayesByBackprop(Variational):
    r"""Bayes by Backprop :cite:p:`blundell2015weight`: mean-field with the KL estimated by the same draw, any prior.

    With :math:`\varepsilon \sim N(0, I)`, :math:`w = \mu + \log(1 + e^\rho) \circ \varepsilon` and
    :math:`f(w, \theta) = \log q(w \mid \theta) - \log p(w) - \log p(D \mid w)` a step follows

    .. math::

        \Delta_\mu = \frac{\partial f}{\partial w} + \frac{\partial f}{\partial \mu}, \qquad
        \Delta_\rho = \frac{\partial f}{\partial w} \circ \frac{\varepsilon}{1 + e^{-\rho}}
        + \frac{\partial f}{\partial \rho}.

    The paper's prior is ``priors.TwoNormals``, its optimiser ``optax.sgd``, its weights of the KL
    ``klweights.Geometric()``; the defaults here are Adam and equal weights, and means begin at the network's own
    initial weights.

    Parameters
    ----------
    kl_weights, num_samples, step_size, optimiser, decay, point, initial_sd, train
        As for `tunbridge.MeanField`.
    """

    divergence: Divergence = eqx.field(default=KL(closed=False), kw_only=True)
    point: Start = eqx.field(default=None, kw_only=True)

    @property
    def form(self) -> Family:
        """Independent numbers."""
        return families.Diagonal()

    def slopes(self, key: Key, target: Target, q: Gaussian, batch: Data, share: Array) -> tuple[Scalar, Gaussian]:
        """F / N and the paper's steps, averaged over draws."""
        if self.num_samples == 1:
            return self._deltas(key, target, q, batch, share)
        keys = jax.random.split(key, self.num_samples)
        each = jax.vmap(lambda one: self._deltas(one, target, q, batch, share))(keys)
        return jax.tree.map(lambda leaf: jnp.mean(leaf, 0), each)

    def _deltas(self, key: Key, target: Target, q: Gaussian, batch: Data, share: Array) -> tuple[Scalar, Gaussian]:
        def f(w: Params, q: Gaussian) -> Scalar:
            complexity = q.log_prob(w) - target.log_prior(w)
            return (share * complexity - target.log_likelihood(w, batch)) / target.num

        noise = q.noise(key)
        value, (by_w, by_q) = jax.value_and_grad(f, (0, 1))(q.place(noise), q)
        means = jax.tree.map(jnp.add, by_w, by_q.mean)
        parts = zip(jax.tree.leaves(by_w), noise, q.spreads, by_q.spreads, strict=True)
        spreads = tuple(Diagonal(w * epsilon * jax.nn.sigmoid(of.rho) + by.rho) for w, epsilon, of, by in parts)
        return value, Gaussian(means, spreads, q.groups)
