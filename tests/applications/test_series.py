"""Simulated paths of an autoregression against its moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.applications.series import simulate
from tunbridge.datasets import Scaling

NUM = 20_000
SIGMA = 0.5
WEIGHT = np.array([[0.6], [0.25]])


def posterior():
    """Two equally probable known autoregressions of order two without a constant, with noise 0.5."""
    rows = tb.datasets.lagged(np.arange(10.0), 2)
    model, _ = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(SIGMA)).bind(rows)
    weights = {"layers": [{"weight": jnp.stack([jnp.asarray(WEIGHT)] * 2), "bias": jnp.array([[0.0], [1.0]])}]}
    return tb.Draws(model, jax.random.key(0), tb.Params(weights))


def moments(steps, before, shift):
    """Means and covariance of the path of one autoregression, from its companion form."""
    step = np.array([[0.6, 0.25], [1.0, 0.0]])
    mean, covariance = np.array(before), np.zeros((2, 2))
    means, variances = [], []
    for _ in range(steps):
        mean = step @ mean + [shift, 0.0]
        covariance = step @ covariance @ step.T + np.diag([SIGMA**2, 0.0])
        means.append(mean[0])
        variances.append(covariance[0, 0])
    return np.array(means), np.array(variances)


def _expected(before):
    (one, variance), (two, _) = (moments(6, before, shift) for shift in (0.0, 1.0))
    return 0.5 * (one + two), variance + 0.25 * (one - two) ** 2


def _close(paths, mean, variance):
    """Within 5 standard errors: 12 comparisons, false alarms below 1e-5."""
    assert np.all(np.abs(paths.mean(axis=0) - mean) < 5 * np.sqrt(variance / NUM))
    assert np.all(np.abs(paths.var(axis=0) / variance - 1.0) < 5 * np.sqrt(2 / NUM))


def test_paths_have_the_moments_of_the_autoregressions(key):
    paths = simulate(posterior(), [9.0, 2.0, 1.0], 6, key=key, num=NUM)
    assert paths.shape == (NUM, 6)
    _close(paths, *_expected([1.0, 2.0]))


def test_paths_of_a_standardised_posterior_are_in_the_units_of_the_series(key):
    """Inputs and outputs have scales of their own, far from zero."""
    inner = posterior()
    scaling = Scaling(np.array([100.0, 100.0]), np.array([2.0, 2.0]), np.array([100.0]), np.array([2.0]))
    paths = simulate(tb.Standardised(inner.model, key, inner, scaling), [104.0, 102.0], 6, key=key, num=NUM)
    mean, variance = _expected([1.0, 2.0])
    _close(paths, 100.0 + 2.0 * mean, 4.0 * variance)


@pytest.mark.parametrize("recent", [[1.0], [[1.0, 2.0]]])
def test_too_few_recent_values_are_refused(recent, key):
    with pytest.raises(tb.InputError, match="the 2 most recent values"):
        simulate(posterior(), recent, 3, key=key)


@pytest.mark.parametrize("gap", [np.nan, np.inf])
def test_gaps_in_recent_values_are_refused(gap, key):
    with pytest.raises(tb.InputError, match="finite values"):
        simulate(posterior(), [1.0, gap], 3, key=key)


def test_posteriors_of_classes_and_of_two_outputs_are_refused(key):
    x = np.arange(8.0)[:, None]
    for likelihood, y in (
        (tb.likelihoods.Bernoulli(), np.arange(8) % 2),
        (tb.likelihoods.Gaussian(0.1), np.ones((8, 2))),
    ):
        model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), likelihood)
        fitted = tb.MAP(train=tb.Train(1)).fit(model, (x, y), key=key, progress=False)
        with pytest.raises(tb.InputError, match="one number per row"):
            simulate(fitted, [1.0], 3, key=key)
