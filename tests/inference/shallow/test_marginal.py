"""Lemma 2.1 with its constant, and its change when one column comes or goes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from tunbridge.inference.shallow.marginal import Regression, log_marginal


def _problem(columns=5, points=30):
    rng = np.random.default_rng(0)
    z, y, mean = rng.normal(size=(points, columns)), rng.normal(size=points), rng.normal(size=columns)
    return z, y, mean, rng.uniform(0.5, 2.0, columns), 0.7


@pytest.mark.parametrize("columns", [1, 5, 40])
def test_the_lemma_is_the_normal_density_of_y(columns, x64):
    z, y, mean, variance, sigma = _problem(columns)
    covariance = sigma**2 * np.eye(len(y)) + (z * variance) @ z.T
    direct = multivariate_normal(z @ mean, covariance).logpdf(y)
    assert float(jax.jit(log_marginal)(y, z, mean, variance, sigma)) == pytest.approx(direct, abs=1e-8)


def _regression(columns, y, shifts):
    return Regression.of(columns.T @ columns, columns.T @ y, shifts)


def test_rank_one_updates_are_fresh_factorisations(x64):
    z, y, mean, variance, sigma = map(jnp.asarray, _problem())
    kept, index = np.array([0, 1, 3, 4]), jnp.asarray(2)
    columns, shifts = z * jnp.sqrt(variance)[None] / sigma, mean / jnp.sqrt(variance)
    whole, fresh = _regression(columns, y / sigma, shifts), _regression(columns.at[:, 2].set(0.0), y / sigma, shifts)
    rest, column = whole.without(index), whole.column(index)
    for updated, factored in zip(rest, fresh, strict=True):
        np.testing.assert_allclose(updated, factored, atol=1e-12)
    gain = log_marginal(y, z, mean, variance, sigma) - log_marginal(y, z[:, kept], mean[kept], variance[kept], sigma)
    assert float(rest.gain(index, column)) == pytest.approx(float(gain), abs=1e-10)
    for updated, first in zip(rest.with_column(index, column), whole, strict=True):
        np.testing.assert_allclose(updated, first, atol=1e-12)


def test_a_column_of_zeros_adds_nothing(x64):
    z, y, *_ = _problem()
    columns, index = jnp.asarray(z).at[:, 1].set(0.0), jnp.asarray(1)
    regression = _regression(columns, jnp.asarray(y), jnp.full(5, 0.3))
    nothing = regression.column(index)
    assert float(regression.gain(index, nothing)) == 0.0
    for updated, first in zip(regression.with_column(index, nothing), regression, strict=True):
        np.testing.assert_array_equal(updated, first)
