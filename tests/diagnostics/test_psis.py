import arviz_base
import arviz_stats
import numpy as np
import pytest
from scipy import stats

import tunbridge as tb
from tunbridge import diagnostics


@pytest.fixture(scope="module")
def normal_mean():
    """y_i ~ N(mu, 1) with a flat prior: what is left out has the density N(mean of the others, 1 + 1 / (n - 1))."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=30)
    mu = rng.normal(y.mean(), 1 / np.sqrt(30), size=4000)
    without = stats.norm((y.sum() - y) / 29, np.sqrt(1 + 1 / 29)).logpdf(y)
    seen = stats.norm(y.mean(), np.sqrt(1 + 1 / 30)).logpdf(y)
    return stats.norm(mu[:, None], 1.0).logpdf(y[None]), without, seen


def test_points_left_out_have_the_density_of_a_fit_without_them(normal_mean):
    log_likelihood, truth, seen = normal_mean
    found, weights = diagnostics.loo(log_likelihood)
    np.testing.assert_allclose(found.elpd_i, truth, atol=0.01)
    np.testing.assert_allclose(found.p_i, seen - truth, atol=0.01)
    assert found.high == 0.0
    np.testing.assert_allclose(np.exp(weights).sum(axis=0), 1.0, rtol=1e-6)
    assert found.elpd == pytest.approx(truth.sum(), abs=0.02)


def test_draws_of_a_chain_that_stood_still_are_not_trusted():
    """Half of the ratios are equal and reach into the tail, which then has no shape: not a light one."""
    values = np.random.default_rng(0).normal(size=(120, 1))
    values[:60], values[60:70] = values.min() - 1.0, values.min() - 2.0
    found, weights = diagnostics.loo(values)
    assert found.khat == np.inf
    assert found.high == 1.0
    np.testing.assert_allclose(np.exp(weights).sum(), 1.0, rtol=1e-6)


def test_estimates_are_those_of_arviz(normal_mean):
    log_likelihood = normal_mean[0].copy()
    log_likelihood[:, 3] *= 40.0  # an outlier
    found, _ = diagnostics.loo(log_likelihood)
    shaped = log_likelihood.reshape(4, 1000, 30)
    tree = arviz_base.from_dict({"log_likelihood": {"y": shaped}})
    with pytest.warns(UserWarning, match="Pareto"):
        theirs = arviz_stats.loo(tree, pointwise=True, reff=1.0)
    np.testing.assert_allclose(found.elpd_i, theirs.elpd_i, rtol=1e-6)
    np.testing.assert_allclose(found.khat, theirs.pareto_k, rtol=1e-6, atol=1e-9)
    assert found.se == pytest.approx(
        np.sqrt(30 * np.var(np.asarray(theirs.elpd_i), ddof=1)), rel=1e-6
    )  # as of arviz-stats 1.0
    assert found.khat[3] > 0.7
    assert found.high == pytest.approx(1 / 30)


def test_ratios_that_are_all_equal_need_no_smoothing():
    values = np.stack([np.full(100, -1.0), np.r_[np.zeros(60), np.full(40, -2.0)]], axis=1)
    found, weights = diagnostics.loo(values)
    assert found.elpd_i[0] == pytest.approx(-1.0)
    assert found.khat.tolist() == [0.0, np.inf]
    np.testing.assert_allclose(np.exp(weights).sum(axis=0), 1.0)


def test_too_few_draws_and_impossible_data_are_refused():
    with pytest.raises(tb.InputError, match="at least 50 draws"):
        diagnostics.loo(np.zeros((49, 3)))
    with pytest.raises(tb.InputError, match="with NaN or infinity"):
        diagnostics.loo(np.full((60, 3), -np.inf))
