r"""The parts of a lower bound on the log evidence of a last layer whose weights are normal.

:math:`w_j \sim N(m_j, S_j)` are the weights of output j, :math:`\phi` the features, with a constant for the bias;
outputs are then normal with mean :math:`m_j^\top \phi` and variance :math:`\phi^\top S_j \phi`, the *spread*.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from tunbridge.core.types import PyTree, Scalar
from tunbridge.model.likelihoods.base import by_output
from tunbridge.model.likelihoods.bernoulli import Bernoulli
from tunbridge.model.likelihoods.categorical import Categorical
from tunbridge.model.likelihoods.gaussian import Gaussian

_SCORES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(11)
_ONE = float(np.log(np.expm1(1.0)))
"""The value whose softplus is 1."""


class Layer(NamedTuple):
    r"""The covariances of the last layer, :math:`S_j = B_j C_j (B_j C_j)^\top`, and the width of the noise.

    C is lower triangular with a softplus on its diagonal; only C is trained. B sets the scale, so that C is close to
    the identity whatever the number of rows and the units.
    """

    raw: Array
    """C before the softplus, (outputs, features, features)."""
    base: Array
    """B, (outputs, features, features); 0 until the noise is measured."""
    log_det: Array
    """The log determinant of B, (outputs,)."""
    width: PyTree
    """The standard deviation of each unknown of the noise, on the real line."""

    @staticmethod
    def none(shape: tuple[int, ...], noise: PyTree) -> "Layer":
        """Return a layer with zero covariance, for weights (features, outputs)."""
        features, outputs = shape
        raw = jnp.broadcast_to(_ONE * jnp.eye(features), (outputs, features, features))
        return Layer(raw, jnp.zeros_like(raw), jnp.zeros(outputs), jax.tree.map(jnp.zeros_like, noise))

    @staticmethod
    def around(precision: Array, variances: Array, width: PyTree) -> "Layer":
        r"""Return a layer with :math:`S_j^{-1}` this precision (outputs, features, features) plus the prior's."""
        scale = jnp.sqrt(variances).T
        whole = scale[:, :, None] * precision * scale[:, None] + jnp.eye(len(variances))[None]
        values, vectors = jnp.linalg.eigh(whole)
        values = jnp.maximum(values, 1.0)
        base = scale[:, :, None] * vectors * jax.lax.rsqrt(values)[:, None]
        log_det = jnp.sum(jnp.log(scale) - 0.5 * jnp.log(values), axis=1)
        return Layer.none(variances.shape, ())._replace(base=base, log_det=log_det, width=width)

    @property
    def trained(self) -> "Layer":
        """The same layer, differentiable in C alone."""
        return jax.lax.stop_gradient(self)._replace(raw=self.raw)

    @property
    def triangle(self) -> Array:
        """C, (outputs, features, features)."""
        diagonal = jax.nn.softplus(jnp.diagonal(self.raw, axis1=1, axis2=2))
        return jnp.tril(self.raw, -1) + diagonal[:, :, None] * jnp.eye(self.raw.shape[1], dtype=self.raw.dtype)[None]

    @property
    def roots(self) -> Array:
        """B C, (outputs, features, features)."""
        return self.base @ self.triangle

    def divergence(self, mean: Array, variances: Array) -> Scalar:
        r"""KL divergence from the prior, given the means (features, outputs) and the prior variances of the weights.

        .. math::

            \sum_j \tfrac12 \Big( \text{tr}(V_j^{-1} S_j) + m_j^\top V_j^{-1} m_j + \log\det V_j - \log\det S_j - d
            \Big)
        """
        diagonal = jnp.sum(self.roots**2, axis=2).T
        terms = 0.5 * ((diagonal + mean**2) / variances + jnp.log(variances) - 1.0)
        log_diagonal = jnp.log(jnp.diagonal(self.triangle, axis1=1, axis2=2))
        return jnp.sum(terms) - jnp.sum(self.log_det) - jnp.sum(log_diagonal)


def spreads(roots: Array, phi: Array) -> Array:
    r""":math:`\phi^\top S_j \phi`, (points, outputs), from features (points, features)."""
    return jnp.sum(jnp.einsum("na,jab->njb", phi, roots) ** 2, axis=2)


def expected(likelihood: Any, outputs: Array, spread: Array, noise: PyTree, width: PyTree, y: Array) -> Array:
    r"""Lower bound on the expectation of log p(y | x), (points,), over outputs of that mean and spread, and over noise.

    For normal noise it is the expectation itself,

    .. math::

        \mathbb{E} \log N(y; f, \sigma^2) = \log N(y; m^\top \phi, \sigma^2)
        - \frac{\phi^\top S \phi}{2 \sigma^2},

    and for classes Jensen's bound on the expectation of the log-sum-exp :cite:p:`harrison2024variational`,

    .. math::

        \mathbb{E} \log \text{softmax}(f)_c \ge m_c^\top \phi
        - \log \sum_k \exp\big(m_k^\top \phi + \tfrac12 \phi^\top S_k \phi\big).

    The logits of two classes are :math:`-a f` and :math:`(1 - a) f` with a the probability at the mean of f: the bound
    holds for any a, and so neither label is preferred.
    """
    if isinstance(likelihood, Gaussian):
        sigma = sigmas(likelihood, noise, width, outputs)
        log_sigma, precision = averaged(jnp.log(sigma)), averaged(sigma**-2)
        errors = (y - outputs) ** 2 + spread
        return -jnp.sum(log_sigma + 0.5 * jnp.log(2.0 * jnp.pi) + 0.5 * precision * errors, axis=1)
    if isinstance(likelihood, Bernoulli):
        a = jax.nn.sigmoid(outputs)
        sums = 0.5 * a**2 * spread + jax.nn.softplus(outputs + (0.5 - a) * spread)
        return (y[:, None] * outputs - sums)[:, 0]
    temperature = jnp.asarray(likelihood.values(noise), outputs.dtype)
    logits = outputs / temperature
    observed = jnp.take_along_axis(logits, y[:, None], axis=1)[:, 0]
    return observed - logsumexp(logits + 0.5 * spread / temperature**2, axis=1)


def sigmas(likelihood: Gaussian, noise: PyTree, width: PyTree, outputs: Array) -> Array:
    """Noise scales at the quadrature nodes of the noise's distribution, (nodes, *outputs)."""

    def sigma_at(score: Array) -> Array:
        return by_output(likelihood.sigma(jax.tree.map(lambda u, w: u + score * w, noise, width)), outputs)

    return jax.vmap(sigma_at)(jnp.asarray(_SCORES, outputs.dtype))


def averaged(values: Array) -> Array:
    """Mean over the noise's distribution of values at the quadrature nodes (leading axis)."""
    return jnp.tensordot(jnp.asarray(_WEIGHTS / _WEIGHTS.sum(), values.dtype), values, axes=1)


def noise_width(likelihood: Any, noise: PyTree, rows: float | Array, outputs: int) -> PyTree:
    """Standard deviation of unknown noise on the real line, when estimated from this many rows.

    From the curvature of their log likelihood at its maximum, and of the log prior.
    """

    def width_of(u: Array) -> Array:
        ones = jnp.ones_like(u)
        derivative = jax.jvp(lambda v: jnp.log(likelihood.sigma((v,))), (u,), (ones,))[1]
        curvature = jax.jvp(jax.grad(lambda v: likelihood.log_noise((v,))), (u,), (ones,))[1]
        return jax.lax.rsqrt(2.0 * rows * outputs / u.size * derivative**2 + jnp.maximum(-curvature, 0.0))

    return jax.tree.map(width_of, noise)


KINDS = (Gaussian, Bernoulli, Categorical)
"""The likelihoods that `expected` supports."""
