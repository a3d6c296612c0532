"""Posteriors held against data, where leaving a point out has a closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import tunbridge as tb
from toys import labelled, model
from tunbridge.bench.truth.exact import _Line, _with_bias, linear
from tunbridge.datasets import Scaling
from tunbridge.inference import checks


@pytest.fixture(scope="module")
def problem():
    return linear()


@pytest.fixture(scope="module")
def posterior(problem):
    return tb.Draws(problem.model.bind(problem.data)[0], jax.random.key(0), problem.draw(jax.random.key(1), 2000))


@pytest.fixture(scope="module")
def found(problem, posterior):
    return posterior.check(problem.data)


def left_out(problem):
    """Mean and standard deviation of each y given all others."""
    x, y = np.asarray(problem.data.x, np.float64), np.asarray(problem.data.y, np.float64)[:, 0]
    for i in range(len(y)):
        line, phi = _Line(np.delete(x, i, 0), np.delete(y, i), 0.5, 1.5), _with_bias(x[i : i + 1])[0]
        yield stats.norm(phi @ line.mean, np.sqrt(0.25 + phi @ line.cov @ phi)), y[i]


def test_points_left_out_have_the_density_and_level_of_the_closed_form(problem, found):
    exact = [(one.logpdf(y), one.cdf(y)) for one, y in left_out(problem)]
    np.testing.assert_allclose(found.loo.elpd_i, [density for density, _ in exact], atol=0.06)
    np.testing.assert_allclose(found.pit[:, 0], [level for _, level in exact], atol=0.02)
    assert found.loo.high == 0.0
    assert f"log density is {found.loo.elpd:,.1f}" in str(found)


def test_data_from_the_model_is_what_it_expects(found):
    assert [row["statistic"] for row in found.rows] == ["mean", "sd", "min", "max", "skew"]
    assert all(0.05 < row["p"] < 0.95 for row in found.rows)
    assert found.replicated.shape == (50, 20, 1)
    assert "<p>The leave-one-out log density" in found._repr_html_()
    assert "uniform leave-one-out P(Y <= y): p = " in found.sentences[-1]


def test_statistics_are_those_of_numpy_and_scipy(problem, found):
    y = np.asarray(problem.data.y, np.float64)[:, 0]
    wanted = [y.mean(), y.std(), y.min(), y.max(), stats.skew(y)]
    np.testing.assert_allclose([row["observed"] for row in found.rows], wanted, rtol=1e-6)
    maxima = found.replicated[..., 0].max(axis=1)
    assert found.rows[3]["expected"] == pytest.approx(maxima.mean(), abs=4 * maxima.std() / np.sqrt(50))


def test_an_outlier_stands_out(problem, posterior):
    y = problem.data.y.at[3].add(12.0)
    found = posterior.check(tb.Data(problem.data.x, y))
    rows = {row["statistic"]: row["p"] for row in found.rows}
    assert rows["max"] == 0.0
    assert rows["skew"] == 0.0
    assert found.loo.khat[3] > 0.7
    assert found.pit[3, 0] > 0.999
    assert "There estimates are unreliable: refit without these points" in " ".join(str(found).split())


def test_blocks_of_points_and_keys_change_nothing_but_the_replicates(problem, posterior, found, monkeypatch):
    monkeypatch.setattr(checks, "_BLOCK", 7)
    again = posterior.check(problem.data, key=jax.random.key(5))
    np.testing.assert_allclose(again.loo.elpd_i, found.loo.elpd_i, rtol=1e-5)
    np.testing.assert_allclose(again.pit, found.pit, rtol=1e-4, atol=1e-6)
    assert again.rows[0]["expected"] != found.rows[0]["expected"]
    assert posterior.check(problem.data).rows == found.rows


def test_a_standardised_posterior_is_checked_in_the_units_of_the_data(problem, posterior, found):
    zero, one = np.zeros(2), np.ones(2)
    outer = tb.Standardised(
        posterior.model, posterior.key, posterior, Scaling(zero, one, np.array([5.0]), np.array([8.0]))
    )
    data = tb.Data(problem.data.x, 5.0 + 8.0 * problem.data.y)
    scaled = outer.check(data)
    np.testing.assert_allclose(scaled.loo.elpd_i, found.loo.elpd_i - np.log(8.0), atol=1e-4)
    np.testing.assert_allclose(scaled.pit, found.pit, atol=1e-4)
    assert scaled.rows[0]["observed"] == pytest.approx(5.0 + 8.0 * found.rows[0]["observed"], rel=1e-5)
    assert scaled.rows[0]["expected"] == pytest.approx(5.0 + 8.0 * found.rows[0]["expected"], rel=1e-5)


@pytest.mark.slow
def test_classes_are_checked_by_their_shares():
    data = labelled(120)
    bound, _ = model((), likelihood=tb.likelihoods.Categorical()).bind(data)
    rng = np.random.default_rng(0)
    layer = {"weight": 0.2 * rng.normal(size=(100, 3, 3)), "bias": 0.2 * rng.normal(size=(100, 3))}
    posterior = tb.Draws(bound, jax.random.key(0), tb.Params({"layers": [jax.tree.map(jnp.asarray, layer)]}))
    y = np.asarray(posterior.predict(data.x).sample(jax.random.key(1), 1))[0]  # from the model itself
    found = posterior.check(tb.Data(data.x, y))
    with pytest.raises(tb.InputError, match="a distribution function for each"):
        posterior.predict(data.x).cdfs(y)
    names = [f"share of class {label}" for label in range(3)] + ["entropy of the shares"]
    assert [row["statistic"] for row in found.rows] == names
    shares = np.bincount(y, minlength=3) / 120
    np.testing.assert_allclose([row["observed"] for row in found.rows[:3]], shares)
    assert found.rows[3]["observed"] == pytest.approx(stats.entropy(shares))
    assert all(0.01 < row["p"] < 0.99 for row in found.rows)
    assert stats.kstest(found.pit[:, 0], "uniform").pvalue > 0.01
    skewed = posterior.check(tb.Data(data.x, np.r_[np.zeros(100, int), np.arange(20) % 3]))
    assert skewed.rows[0]["p"] == 0.0
    assert skewed.rows[3]["p"] == 1.0


def test_answers_network_by_network_average_to_those_of_the_mixture(problem, posterior):
    predictive, y = posterior.predict(problem.data.x), problem.data.y
    mixed = special.logsumexp(np.asarray(predictive.log_probs(y)), axis=0) - np.log(2000)
    np.testing.assert_allclose(mixed, predictive.log_prob(y), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.mean(predictive.cdfs(y), axis=0), predictive.cdf(y), rtol=1e-5)
    replicates = np.asarray(predictive.replicates(jax.random.key(2)))
    residuals = replicates - np.asarray(predictive.functions)
    assert residuals.shape == (2000, 20, 1)
    assert residuals.std() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(2 * residuals.size))


def test_points_are_not_left_out_of_few_networks(problem, posterior):
    point = tb.Point(posterior.model, posterior.key, jax.tree.map(lambda leaf: leaf[0], posterior.params))
    found = point.check(problem.data)
    assert found.loo is None
    assert found.pit is None
    assert "Leave-one-out estimates need at least" in str(found)
    assert len(found.rows) == 5


def test_what_cannot_be_checked_is_refused(problem, posterior, monkeypatch):
    with pytest.raises(tb.InputError, match=r"as tb\.Data or a pair"):
        posterior.check(problem.data.x)
    with pytest.raises(tb.InputError, match="rows that count once"):
        posterior.check(tb.Data(problem.data.x, problem.data.y, np.ones(20)))
    monkeypatch.setattr(checks, "_MOST_BYTES", 7999)
    with pytest.raises(tb.InputError, match="GiB for 20 points"):
        posterior.check(problem.data)
