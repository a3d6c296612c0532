import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

import tunbridge as tb
from tunbridge.predict import outputs as blocks
from tunbridge.predict.scaled import ScaledPredictive

MEANS, SIGMA = np.array([-1.0, 0.5, 0.7, 4.0]), 0.4


def _constant(key, x):
    return {"f": jnp.zeros(())}


def _everywhere(weights, x):
    return jnp.broadcast_to(weights["f"], (x.shape[0], 1))


def mixture(means, sigma=SIGMA, points=3):
    """The predictive whose components are N(means[s], sigma^2) at every point."""
    network = tb.networks.from_functions(_constant, _everywhere)
    made = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(sigma))
    params = tb.Params({"f": jnp.asarray(means)})
    return tb.Draws(made, jax.random.key(0), params).predict(np.zeros((points, 1)))


def density(y):
    return stats.norm(MEANS[:, None], SIGMA).pdf(np.atleast_1d(y)[None]).mean(0)


def cumulative(y):
    return stats.norm(MEANS[:, None], SIGMA).cdf(np.atleast_1d(y)[None]).mean(0)


def test_moments_are_those_of_the_mixture(x64):
    predictive = mixture(MEANS)
    assert predictive.mean.shape == predictive.variance.shape == (3, 1)
    np.testing.assert_allclose(predictive.mean, MEANS.mean(), rtol=1e-12)
    np.testing.assert_allclose(predictive.aleatoric, SIGMA**2, rtol=1e-12)
    np.testing.assert_allclose(predictive.epistemic, MEANS.var(), rtol=1e-12)
    np.testing.assert_array_equal(predictive.total, predictive.aleatoric + predictive.epistemic)
    np.testing.assert_allclose(predictive.std**2, predictive.variance, rtol=1e-12)


def test_quantiles_invert_the_mixtures_distribution_function(x64):
    predictive = mixture(MEANS)
    levels = np.array([0.001, 0.05, 0.25, 0.5, 0.75, 0.95, 0.999])
    found = predictive.quantile(levels)
    assert found.shape == (7, 3, 1)
    wanted = [optimize.brentq(lambda y, q=q: cumulative(y)[0] - q, -20, 20, xtol=1e-13) for q in levels]
    np.testing.assert_allclose(found[:, 1, 0], wanted, atol=1e-9)
    np.testing.assert_allclose(predictive.cdf(found)[:, 0, 0], levels, atol=1e-9)
    assert predictive.quantile(0.5).shape == (3, 1)
    lower, upper = predictive.interval(0.9)
    np.testing.assert_allclose([lower[0, 0], upper[0, 0]], [wanted[1], wanted[5]], atol=1e-9)


def test_log_prob_is_the_log_of_the_mean_density(x64):
    y = np.array([-3.0, 0.6, 9.0])
    np.testing.assert_allclose(mixture(MEANS).log_prob(y), np.log(density(y)), atol=1e-9)


def test_far_values_do_not_underflow():
    assert np.isfinite(mixture(MEANS).log_prob(np.array([100.0, -80.0, 0.0]))).all()


def test_mode_and_entropy_are_those_of_the_density(x64):
    predictive = mixture(MEANS)
    wanted = integrate.quad(lambda y: -density(y)[0] * np.log(density(y)[0] + 1e-300), -4, 7, limit=400)[0]
    np.testing.assert_allclose(predictive.entropy[0, 0], wanted, atol=2e-3)
    best = optimize.minimize_scalar(lambda y: -density(y)[0], bounds=(0, 1), method="bounded").x
    assert float(density(np.asarray(predictive.mode)[0, 0])[0]) > 0.995 * density(best)[0]
    one = mixture(np.array([2.0]))
    np.testing.assert_allclose(one.entropy, 0.5 * np.log(2 * np.pi * np.e * SIGMA**2), atol=1e-4)
    np.testing.assert_allclose(one.mode, 2.0, atol=1e-9)


def test_samples_have_the_mixtures_distribution(key):
    """Kolmogorov-Smirnov at level 1e-3, fixed key; one network serves all points of a draw."""
    predictive = mixture(MEANS, points=2)
    draws = np.asarray(predictive.sample(key, 5000))
    assert draws.shape == (5000, 2, 1)
    assert stats.kstest(draws[:, 0, 0], cumulative).pvalue > 1e-3
    correlation = np.corrcoef(draws[:, 0, 0], draws[:, 1, 0])[0, 1]
    assert correlation == pytest.approx(MEANS.var() / (MEANS.var() + SIGMA**2), abs=0.03)


def test_blocks_change_nothing(monkeypatch, key):
    whole = mixture(MEANS, points=11)
    y = np.linspace(-2, 5, 11)
    wanted = [whole.mean, whole.quantile([0.1, 0.9]), whole.log_prob(y), whole.sample(key, 4), whole.epistemic]
    for name in ("_BLOCK_NUMBERS", "_CACHE_NUMBERS"):
        monkeypatch.setattr(blocks, name, 13)
    small = mixture(MEANS, points=11)
    found = [small.mean, small.quantile([0.1, 0.9]), small.log_prob(y), small.sample(key, 4), small.epistemic]
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.slow
def test_a_million_rows_never_meet_all_draws_at_once(monkeypatch):
    """200,000 rows x 500 draws would be 400 MB of outputs; no array may be larger than a block of them."""
    seen = []
    real = blocks._forward

    def spy(*arguments):
        out = real(*arguments)
        seen.append(out.size)
        return out

    monkeypatch.setattr(blocks, "_forward", spy)
    predictive = mixture(np.linspace(-1, 1, 500), points=200_000)
    assert predictive.mean.shape == (200_000, 1)
    assert max(seen) <= blocks._BLOCK_NUMBERS


def test_the_monte_carlo_predictive_of_a_linear_model_is_the_closed_form(key):
    """Exact draws of the linear problem: mean and variance within 3 Monte Carlo standard errors at 4 inputs.

    False alarms of 8 comparisons: 2.2 %, with a fixed key.
    """
    from tunbridge.bench import PROBLEMS

    problem, num = PROBLEMS["linear"](), 4000
    posterior = tb.Draws(problem.model, key, problem.draw(key, num))
    predictive = posterior.predict(problem.x)
    variance = problem.sd**2 + 0.5**2
    assert (np.abs(np.asarray(predictive.mean)[:, 0] - problem.mean) < 3 * problem.sd / num**0.5).all()
    error = problem.sd**2 * (2 / num) ** 0.5
    assert (np.abs(np.asarray(predictive.variance)[:, 0] - variance) < 3 * error).all()
    exact = stats.norm(problem.mean, variance**0.5)
    np.testing.assert_allclose(predictive.quantile(0.9)[:, 0], exact.ppf(0.9), atol=0.05)
    np.testing.assert_allclose(predictive.log_prob(problem.mean), exact.logpdf(problem.mean), atol=0.05)


def test_units_are_changed_exactly(x64, key):
    inner, shift, scale = mixture(MEANS), np.array([10.0]), np.array([5.0])
    outer = ScaledPredictive(inner, shift, scale)
    y = np.array([[5.0], [12.0], [31.0]])
    np.testing.assert_allclose(outer.mean, 10 + 5 * inner.mean)
    np.testing.assert_allclose(outer.variance, 25 * inner.variance)
    np.testing.assert_allclose(outer.quantile(0.3), 10 + 5 * inner.quantile(0.3))
    np.testing.assert_allclose(outer.cdf(y), inner.cdf((y - 10) / 5))
    np.testing.assert_allclose(outer.log_prob(y), inner.log_prob((y - 10) / 5) - np.log(5))
    np.testing.assert_allclose(outer.log_prob(y[:, 0]), outer.log_prob(y))
    np.testing.assert_allclose(outer.entropy, inner.entropy + np.log(5))
    np.testing.assert_allclose(outer.mode, 10 + 5 * inner.mode)
    np.testing.assert_allclose(outer.sample(key, 3), 10 + 5 * inner.sample(key, 3))
    total = integrate.quad(lambda t: float(np.exp(outer.log_prob(np.full(3, t))[0])), -30, 60, limit=200)[0]
    assert total == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda p: p.quantile(1.0), "levels between 0 and 1"),
        (lambda p: p.quantile([[0.1]]), "levels between 0 and 1"),
        (lambda p: p.interval(90), "a mass between 0 and 1"),
        (lambda p: p.cdf(np.zeros(3)), r"y of shape \(\.\.\., 3, 1\)"),
        (lambda p: p.log_prob(np.zeros(4)), "as many rows in y as in x"),
        (lambda p: p.log_prob(np.zeros((3, 4))), r"y of shape \(3, 1\); got shape \(3, 4\)"),
        (lambda p: p.log_prob([0.0, np.nan, 1.0]), "finite numbers in y"),
        (lambda p: p.quantile(1 - 1e-9), "levels between 0 and 1 as float32"),
        (lambda p: p.probs, "a predictive of classes"),
    ],
)
def test_questions_without_an_answer_are_refused(ask, said):
    with pytest.raises(tb.InputError, match=said):
        ask(mixture(MEANS))


@pytest.mark.parametrize("sigma", [0.001, 0.01, 1.0])
def test_entropy_and_mode_hold_when_members_disagree_by_more_than_the_noise(sigma, x64):
    """Two components 10 apart: entropy is that of one plus log 2 while they do not overlap."""
    predictive = mixture(np.array([-5.0, 5.0]), sigma)
    one = 0.5 * np.log(2 * np.pi * np.e * sigma**2)
    np.testing.assert_allclose(predictive.entropy, one + np.log(2), atol=1e-3)
    np.testing.assert_allclose(np.abs(predictive.mode), 5.0, atol=1e-6)
