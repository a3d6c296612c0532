import jax
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.bench.effects import effect


@pytest.fixture(scope="module")
def line():
    """y = 2 a + 3 [level v]: the effects are known."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=80), np.eye(3)[rng.integers(0, 3, 80)]])
    data = tb.Data(x, 2 * x[:, 0] + 3 * x[:, 2] + 0.01 * rng.normal(size=80))
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(10.0), tb.likelihoods.Gaussian(0.01))
    return tb.Ensemble(tb.MAP(), 2).fit(model, data, key=jax.random.key(0)), x


def test_a_number_has_its_slope(line):
    posterior, x = line
    found = effect(posterior, x, "a", [0])
    np.testing.assert_allclose(np.diff(found.mean[:, 0]) / np.diff(found.values), 2.0, rtol=0.02)
    assert found.mean.shape == found.std.shape == (15, 1)
    assert found.size == pytest.approx(2 * np.ptp(found.values), rel=0.02)


def test_a_level_has_its_shift(line):
    posterior, x = line
    found = effect(posterior, x, "b", [1, 2, 3], ("u", "v", "w"))
    np.testing.assert_allclose(found.mean[:, 0] - found.mean[0, 0], [0.0, 3.0, 0.0], atol=0.05)


def test_functions_average_to_the_mean(line):
    posterior, x = line
    predictive = posterior.predict(x)
    assert predictive.functions.shape == (2, 80, 1)
    np.testing.assert_allclose(predictive.functions.mean(0), predictive.mean, rtol=1e-5)
