import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_t

import tunbridge as tb
from toys import quick
from tunbridge.bench import PROBLEMS, deviation


@pytest.mark.parametrize("name", PROBLEMS)
def test_exact_draws_have_the_exact_moments(name, key):
    """4,000 draws: mean and deviation within 0.1 posterior sd at 4 inputs; 6 standard errors, fixed key."""
    problem = PROBLEMS[name]()
    posterior = tb.Draws(problem.model, key, problem.draw(key, 4000))
    assert deviation(problem, posterior, "exact", key, 20_000) < 0.1
    if problem.noise:
        sigma = np.exp(np.asarray(posterior.params.noise[0]))
        assert sigma.mean() == pytest.approx(problem.noise[0], abs=6 * problem.noise[1] / 4000**0.5)


@pytest.mark.parametrize("name", quick(PROBLEMS, ("linear", "tanh_unit")))
def test_the_models_own_density_has_the_exact_evidence(name, key, x64):
    """`Target` integrates to the textbook's evidence: on a grid, by Bayes' rule at a draw, by importance sampling."""
    problem = PROBLEMS[name]()
    bound, rows = problem.model.bind(problem.data)
    target = tb.Target(bound, float(rows.num))
    if name in ("logistic", "tanh_unit"):
        axis = np.linspace(-8, 8, 401)
        grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
        density = jax.jit(jax.vmap(lambda w: target.log_density(tb.Params({"w": w}), rows)))
        found = logsumexp(density(grid)) + 2 * np.log(axis[1] - axis[0])
        assert float(found) == pytest.approx(problem.log_evidence, abs=1e-6)
        return
    draws = problem.draw(key, 300)
    flat = np.asarray(jax.jit(jax.vmap(lambda p: jax.flatten_util.ravel_pytree(p)[0]))(draws))
    joint = jax.jit(jax.vmap(lambda p: target.log_density(p, rows)))(draws)
    mean, cov = np.mean(flat, 0), np.cov(flat.T)
    if name == "linear":  # the posterior is normal: joint / posterior is the evidence at every draw
        from tunbridge.bench.truth.exact import _Line, _linear_data

        line = _Line(*_linear_data()[:2], 0.5, 1.5)
        order = np.array([2, 0, 1])  # bias first, as leaves are sorted
        mean, cov = line.mean[order], line.cov[order][:, order]
        exact = _normal(flat, mean, cov)
        np.testing.assert_allclose(joint - exact, problem.log_evidence, atol=1e-8)
    else:
        heavy = multivariate_t(mean, cov, df=4)  # a normal proposal has lighter tails than the posterior
        proposal = heavy.rvs(20_000, random_state=0)
        unravel = jax.flatten_util.ravel_pytree(jax.tree.map(lambda leaf: leaf[0], draws))[1]
        density = jax.jit(jax.vmap(lambda u: target.log_density(unravel(u), rows)))(proposal)
        ratio = density - heavy.logpdf(proposal)
        found = logsumexp(ratio) - np.log(20_000)
        assert float(found) == pytest.approx(problem.log_evidence, abs=0.05)


def _normal(rows, mean, cov):
    return jax.jit(jax.vmap(lambda row: jax.scipy.stats.multivariate_normal.logpdf(row, mean, cov)))(rows)


def test_the_linear_posterior_is_ridge_and_its_covariance_the_inverse_precision(x64):
    from sklearn.linear_model import Ridge

    from tunbridge.bench.truth.exact import _Line, _linear_data, _with_bias

    x, y, _ = _linear_data()
    line = _Line(x, y, 0.5, 1.5)
    phi = _with_bias(x)
    ridge = Ridge(alpha=0.5**2 / 1.5**2, fit_intercept=False, tol=1e-12).fit(phi, y)
    np.testing.assert_allclose(line.mean, ridge.coef_, atol=1e-8)
    np.testing.assert_allclose(line.cov @ (phi.T @ phi / 0.25 + np.eye(3) / 2.25), np.eye(3), atol=1e-8)
    hessian = jax.jit(jax.hessian(_negative_log_joint(x, y)))(jnp.zeros(3))
    np.testing.assert_allclose(np.linalg.inv(hessian), line.cov, atol=1e-8)


def _negative_log_joint(x, y):
    problem = PROBLEMS["linear"]()
    bound, rows = problem.model.bind(tb.Data(x, y))

    def value(w):
        layer = {"weight": w[:2, None], "bias": w[2:]}
        return -tb.Target(bound, 20.0).log_density(tb.Params({"layers": [layer]}), rows)

    return value


def test_a_wrong_posterior_is_far_from_the_truth(key):
    """The prior, and a posterior half as wide: both must be seen."""
    problem = PROBLEMS["linear"]()
    prior = jax.vmap(lambda k: problem.model.sample_params(k, jnp.asarray(problem.x)))(jax.random.split(key, 2000))
    assert deviation(problem, tb.Draws(problem.model, key, prior), "exact", key) > 1.0
    draws = problem.draw(key, 2000)
    narrow = jax.tree.map(lambda leaf: leaf.mean(0, keepdims=True) + 0.5 * (leaf - leaf.mean(0, keepdims=True)), draws)
    assert deviation(problem, tb.Draws(problem.model, key, narrow), "exact", key) > 0.4
