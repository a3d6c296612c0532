"""Each conditional distribution against the joint density on a grid, up to a constant."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from tunbridge.inference.shallow import conditionals
from tunbridge.inference.shallow.conditionals import Beta, Gamma, InverseGamma, Normal, Wishart
from tunbridge.inference.shallow.form import Unknowns
from tunbridge.inference.shallow.hyper import _Weights, draw_wishart
from tunbridge.model.priors.exchangeable import Exchangeable

RNG = np.random.default_rng(0)
VALUES, USED = RNG.normal(0.5, 1.2, 6), np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
VECTORS = RNG.normal(size=(3, 6))
PRECISION = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 1.5]])


def _constant(conditional, joint):
    """Two log densities on a grid differ by a constant."""
    difference = np.asarray(conditional) - np.asarray(joint)
    assert np.ptp(joint) > 0.5
    np.testing.assert_allclose(difference, difference[0], atol=1e-8)


def test_mean(x64):
    law = conditionals.mean(Normal(0.3, 2.0), VALUES, USED, 0.8)
    grid = np.linspace(-2.0, 2.0, 9)
    joint = [
        stats.norm(0.3, np.sqrt(2.0)).logpdf(m) + stats.norm(m, np.sqrt(0.8)).logpdf(VALUES[:4]).sum() for m in grid
    ]
    _constant(stats.norm(law.mean, np.sqrt(law.variance)).logpdf(grid), joint)


def test_variance(x64):
    law = conditionals.variance(InverseGamma(2.5, 1.3), VALUES - 0.2, USED)
    grid = np.linspace(0.2, 3.0, 9)
    prior = stats.invgamma(2.5, scale=1.3).logpdf(grid)
    joint = [p + stats.norm(0.2, np.sqrt(v)).logpdf(VALUES[:4]).sum() for p, v in zip(prior, grid, strict=True)]
    _constant(stats.invgamma(law.concentration, scale=law.rate).logpdf(grid), joint)


def test_precision(x64):
    law = conditionals.precision(Gamma(2.5, 1.3), VECTORS, np.broadcast_to(USED, VECTORS.shape))
    grid = np.linspace(0.2, 3.0, 9)
    prior = stats.gamma(2.5, scale=1 / 1.3).logpdf(grid)
    joint = [p + stats.norm(0.0, t**-0.5).logpdf(VECTORS[:, :4]).sum() for p, t in zip(prior, grid, strict=True)]
    _constant(stats.gamma(law.concentration, scale=1 / law.rate).logpdf(grid), joint)


def test_vector_mean(x64):
    prior = Normal(np.array([0.1, -0.2, 0.3]), np.array([1.0, 2.0, 0.5]))
    mean, precision = conditionals.vector_mean(prior, VECTORS, USED, PRECISION)
    grid = RNG.normal(size=(9, 3))
    units = stats.multivariate_normal(np.zeros(3), np.linalg.inv(PRECISION))
    joint = [
        stats.norm(prior.mean, np.sqrt(prior.variance)).logpdf(m).sum() + units.logpdf(VECTORS[:, :4].T - m).sum()
        for m in grid
    ]
    _constant(stats.multivariate_normal(mean, np.linalg.inv(precision)).logpdf(grid), joint)


def test_precision_matrix(x64):
    rate = np.array([[1.0, 0.2, 0.0], [0.2, 2.0, 0.1], [0.0, 0.1, 1.5]])
    law = conditionals.precision_matrix(Wishart(5.0, rate), VECTORS, USED)
    grid = stats.wishart(6, np.eye(3) / 5).rvs(9, random_state=1)
    joint = [
        stats.wishart(5.0, np.linalg.inv(rate)).logpdf(m)
        + stats.multivariate_normal(np.zeros(3), np.linalg.inv(m)).logpdf(VECTORS[:, :4].T).sum()
        for m in grid
    ]
    posterior = stats.wishart(float(law.concentration), np.linalg.inv(law.rate))
    _constant([posterior.logpdf(m) for m in grid], joint)


@pytest.mark.slow
def test_wishart_draws_have_the_moments_of_numpyros(key):
    """Means and variances within 5 standard errors of 20,000 draws each: 12 comparisons, false alarms below 1e-5."""
    law = Wishart(jnp.asarray(5.5), jnp.asarray([[1.0, 0.4], [0.4, 2.0]]))
    gammas = jax.random.gamma(jax.random.key(2), jnp.array([2.75, 2.25]), (20_000, 2))
    draws = jax.vmap(lambda k, g: draw_wishart(k, law, g))(jax.random.split(key, 20_000), gammas)
    theirs = dist.Wishart(law.concentration, rate_matrix=law.rate).sample(jax.random.key(1), (20_000,))
    for ours, other in [(draws, theirs), (jnp.linalg.inv(draws), jnp.linalg.inv(theirs)), (draws**2, theirs**2)]:
        error = np.sqrt((ours.var(axis=0) + other.var(axis=0)) / len(ours))
        assert np.all(np.abs(ours.mean(axis=0) - other.mean(axis=0)) < 5 * error)


@pytest.mark.parametrize("count", [0, 3, 6])
def test_inclusion(count, x64):
    law = conditionals.inclusion(Beta(1.5, 2.0), jnp.asarray(float(count)), 6)
    grid = np.linspace(0.1, 0.9, 9)
    joint = stats.beta(1.5, 2.0).logpdf(grid) + count * np.log(grid) + (count < 6) * np.log1p(-grid)
    _constant(stats.beta(law.concentration1, law.concentration0).logpdf(grid), joint)


def test_coefficients(x64):
    columns, residual = RNG.normal(size=(12, 3)), RNG.normal(size=12)
    mean, precision = conditionals.coefficients(jnp.asarray(columns.T @ columns), jnp.asarray(columns.T @ residual))
    grid = RNG.normal(size=(9, 3))
    joint = [stats.norm.logpdf(u).sum() + stats.norm.logpdf(residual - columns @ u).sum() for u in grid]
    _constant(stats.multivariate_normal(mean, np.linalg.inv(precision)).logpdf(grid), joint)


def test_the_density_behind_slice_sampling_is_that_of_the_weights_in_use_and_of_their_number(x64):
    """Differences of `_Weights.log_density` between values of all numbers, against SciPy, for two units of three."""
    prior = Exchangeable(alpha=0.5, units=3)
    rows = np.random.default_rng(3)
    hidden, output, linear = rows.normal(size=(2, 3)), rows.normal(size=3), rows.normal(size=2)
    start = {
        "output_mean": 0.2, "output_variance": 1.3, "hidden_mean": np.array([0.1, -0.4]),
        "hidden_precision": np.array([[2.0, 0.3], [0.3, 1.0]]), "linear_variance": 0.7, "alpha": 0.4,
    }  # fmt: skip
    other = {
        "output_mean": -0.5, "output_variance": 0.6, "hidden_mean": np.array([0.5, 0.2]),
        "hidden_precision": np.array([[1.0, -0.2], [-0.2, 3.0]]), "linear_variance": 1.9, "alpha": 0.7,
    }  # fmt: skip
    arrays = {name: jnp.asarray(value) for name, value in start.items()}
    number = jnp.asarray(2.0)
    held = _Weights(Unknowns(*map(jnp.asarray, (hidden, output, linear)), arrays, number, jnp.asarray(1.0)))
    weights = np.asarray(held.hidden)

    def joint(numbers):
        law = stats.multivariate_normal(numbers["hidden_mean"], np.linalg.inv(numbers["hidden_precision"]))
        return (
            law.logpdf(weights[:, :2].T).sum()
            + stats.norm(numbers["output_mean"], numbers["output_variance"] ** 0.5).logpdf(held.output[:2]).sum()
            + stats.norm(0.0, numbers["linear_variance"] ** 0.5).logpdf(held.linear).sum()
            + 2 * np.log(numbers["alpha"])
            + np.log1p(-numbers["alpha"])
        )

    for name in start:
        changed = start | {name: other[name]}
        ours = [held.log_density(jax.tree.map(jnp.asarray, numbers), prior) for numbers in (changed, start)]
        assert float(ours[0] - ours[1]) == pytest.approx(joint(changed) - joint(start), abs=1e-9), name
