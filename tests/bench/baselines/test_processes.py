import jax
import numpy as np
import pytest
import tinygp
from tinygp.kernels import ExpSquared

import tunbridge as tb
from tunbridge.bench import ExactProcess, SparseProcess
from tunbridge.bench.baselines.processes import regression

NOISE, LENGTH, VARIANCE = 0.2, 0.7, 1.5


def kernel(length=LENGTH, variance=VARIANCE):
    return variance * ExpSquared(length)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, size=(40, 1))
    return x, np.sin(2 * x[:, 0]) + NOISE * rng.normal(size=40), np.linspace(-3, 3, 9)[:, None]


@jax.jit
def by_tinygp(x, y, test):
    evidence, given = tinygp.GaussianProcess(kernel(), x, diag=NOISE**2).condition(y, test)
    return evidence, given.loc, given.covariance


@pytest.fixture(scope="module")
def exact(rows):
    x, y, _ = rows
    return ExactProcess(kernel(), NOISE, tune=False).fit(x, y, key=jax.random.key(0))


def test_it_is_the_process_of_tinygp(rows, exact):
    x, y, test = rows
    with jax.enable_x64(True):
        evidence, mean, covariance = map(np.asarray, by_tinygp(x, y, test))
    predictive = exact.predict(test)
    assert exact.log_evidence == pytest.approx(float(evidence), rel=1e-9)
    np.testing.assert_allclose(predictive.mean[:, 0], mean, atol=1e-9)
    np.testing.assert_allclose(predictive.epistemic[:, 0], np.diag(covariance), atol=1e-7)
    np.testing.assert_allclose(exact.covariance(test), covariance, atol=1e-7)


def test_it_is_the_process_of_scikit_learn(rows, exact):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    x, y, test = rows
    theirs = GaussianProcessRegressor(ConstantKernel(VARIANCE) * RBF(LENGTH), alpha=NOISE**2, optimizer=None).fit(x, y)
    mean, std = theirs.predict(test, return_std=True)
    np.testing.assert_allclose(exact.predict(test).mean[:, 0], mean, atol=1e-7)
    np.testing.assert_allclose(np.sqrt(exact.predict(test).epistemic[:, 0]), std, atol=1e-6)
    assert exact.log_evidence == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-7)


@pytest.mark.slow
def test_inducing_points_at_every_row_are_the_exact_process(rows, exact):
    x, y, test = rows
    sparse = SparseProcess(kernel(), NOISE, tune=False, inducing=40).fit(x, y, key=jax.random.key(0))
    assert sparse.log_evidence == pytest.approx(exact.log_evidence, abs=1e-4)
    np.testing.assert_allclose(sparse.predict(test).mean, exact.predict(test).mean, atol=1e-4)
    np.testing.assert_allclose(sparse.predict(test).std, exact.predict(test).std, atol=1e-4)
    np.testing.assert_allclose(sparse.covariance(test), exact.covariance(test), atol=1e-4)


def test_few_inducing_points_bound_the_evidence_from_below(rows, exact):
    x, y, _ = rows
    few = SparseProcess(kernel(), NOISE, tune=False, inducing=6).fit(x, y, key=jax.random.key(0))
    assert few.centres.shape == (6, 1)
    assert few.log_evidence < exact.log_evidence


@pytest.mark.slow
@pytest.mark.parametrize("method", [ExactProcess, SparseProcess])
def test_tuning_finds_a_larger_evidence_where_its_gradient_vanishes(method, rows):
    x, y, _ = rows
    found = method(kernel(3.0, 0.3), 1.0, restarts=1).fit(x, y, key=jax.random.key(0))
    given = method(kernel(3.0, 0.3), 1.0, tune=False).fit(x, y, key=jax.random.key(0))
    assert found.log_evidence > given.log_evidence + 10
    assert 0.5 * NOISE < found.noise < 2 * NOISE
    for factor in (0.97, 1.03):
        moved = method(found.kernel, factor * found.noise, tune=False).fit(x, y, key=jax.random.key(0))
        assert moved.log_evidence < found.log_evidence


def test_the_predictive_is_normal_and_scores_like_any_other(rows, exact, key):
    predictive = exact.predict(rows[2])
    np.testing.assert_allclose(predictive.total, predictive.std**2, rtol=1e-12)
    lower, upper = predictive.interval(0.9)
    np.testing.assert_allclose(upper - lower, 2 * 1.6448536 * predictive.std, rtol=1e-6)
    np.testing.assert_allclose(predictive.cdf(upper), 0.95, rtol=1e-9)
    truth = np.zeros((9, 1))
    assert tb.metrics.log_score(predictive, truth) == pytest.approx(float(predictive.log_prob(truth).mean()))
    assert 0 < tb.metrics.crps(predictive, truth) < tb.metrics.rmse(predictive, truth) + 1
    draws = np.asarray(predictive.sample(key, 4000))
    assert (np.abs(draws.mean(0) - predictive.mean) < 5 * predictive.std / np.sqrt(4000)).all()
    np.testing.assert_allclose(draws.std(0), predictive.std, rtol=0.08)
    assert predictive.functions.shape == (100, 9, 1)


def test_what_does_not_fit_in_memory_is_refused_with_the_way_out(rows, monkeypatch):
    x, y, _ = rows
    monkeypatch.setattr(regression, "_MOST_BYTES", 40 * 40 * 8)
    with pytest.raises(tb.InputError, match=r"40 x 40 numbers.*SparseProcess"):
        ExactProcess(kernel()).fit(x, y, key=jax.random.key(0))


def test_wrong_rows_are_refused(rows, exact):
    x, y, _ = rows
    for wrong in (y[:3], np.stack([y, y], axis=1)):
        with pytest.raises(tb.InputError, match="finite y"):
            ExactProcess(kernel()).fit(x, wrong, key=jax.random.key(0))
    with pytest.raises(tb.InputError, match="noise above 0"):
        ExactProcess(kernel(), 0.0).fit(x, y, key=jax.random.key(0))
    with pytest.raises(tb.InputError, match="positive numbers"):
        ExactProcess(kernel(variance=-1.0)).fit(x, y, key=jax.random.key(0))
    with pytest.raises(tb.InputError, match="points, 1"):
        exact.predict(np.zeros((2, 3)))
