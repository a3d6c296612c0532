"""Conditional distributions of a shallow network's unknowns, each given all others: one Gibbs step each.

Each function takes what the unknown depends on and returns the parameters of its distribution. They hold for the first
`count` units; rows of units left out are given weight 0.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.types import Scalar


class Normal(NamedTuple):
    """Mean and variance of independent normal variables."""

    mean: Array
    variance: Array


class VectorNormal(NamedTuple):
    """Mean and precision matrix of a normal vector."""

    mean: Array
    precision: Array


class InverseGamma(NamedTuple):
    """Concentration and rate of an inverse gamma variable, a variance."""

    concentration: Array
    rate: Array


class Gamma(NamedTuple):
    """Concentration and rate of a gamma variable, a precision."""

    concentration: Array
    rate: Array


class Wishart(NamedTuple):
    """Degrees of freedom and inverse scale matrix, so that the mean is their quotient."""

    concentration: Array
    rate: Array


class Beta(NamedTuple):
    """The two concentrations of a beta variable."""

    concentration1: Array
    concentration0: Array


def coefficients(gram: Array, products: Array) -> VectorNormal:
    r"""Whitened coefficients, minus their prior means, given :math:`Z^\top Z` and :math:`Z^\top r`."""
    precision = jnp.eye(gram.shape[0], dtype=gram.dtype) + gram
    return VectorNormal(jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(precision), True), products), precision)


def mean(prior: Normal, values: Array, weights: Array, variance: Scalar) -> Normal:
    """The common mean of values (units,), normal with a known variance."""
    precision = 1.0 / prior.variance + jnp.sum(weights) / variance
    return Normal((prior.mean / prior.variance + jnp.sum(weights * values) / variance) / precision, 1.0 / precision)


def variance(prior: InverseGamma, deviations: Array, weights: Array) -> InverseGamma:
    """The common variance of normal deviations (values,) from known means."""
    return InverseGamma(
        prior.concentration + 0.5 * jnp.sum(weights), prior.rate + 0.5 * jnp.sum(weights * jnp.square(deviations))
    )


def precision(prior: Gamma, deviations: Array, weights: Array) -> Gamma:
    """The common precision of normal deviations (values,) from known means."""
    return Gamma(*variance(InverseGamma(*prior), deviations, weights))


def vector_mean(prior: Normal, vectors: Array, weights: Array, precision: Array) -> VectorNormal:
    r"""The common mean of vectors (entries, units) with precision :math:`\Lambda`.

    The prior is normal, independent over entries.
    """
    posterior = jnp.diag(1.0 / prior.variance) + jnp.sum(weights) * precision
    total = prior.mean / prior.variance + precision @ (vectors @ weights)
    return VectorNormal(jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(posterior), True), total), posterior)


def precision_matrix(prior: Wishart, deviations: Array, weights: Array) -> Wishart:
    """The common precision matrix of normal deviations (entries, units) from known means."""
    return Wishart(prior.concentration + jnp.sum(weights), prior.rate + (deviations * weights[None]) @ deviations.T)


def inclusion(prior: Beta, count: Array, most: int) -> Beta:
    r""":math:`\alpha` given the number of units: it was followed by another `count` times, and once not."""
    return Beta(prior.concentration1 + count, prior.concentration0 + (count < most))
