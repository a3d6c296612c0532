import jax
import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

import tunbridge as tb
from tunbridge.bench.comparing.effects import Effect, effect
from tunbridge.bench.comparing.report import columns
from tunbridge.datasets.encoding import Encoding


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


def test_the_effects_of_classes_are_drawn_between_0_and_1():
    """Means near both ends whose bands of two standard deviations reach from -0.3 to 1.3."""
    mean, std = np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]]), np.full((3, 2), 0.2)
    classes = pa.table({"a": [0.0, 1.0, 2.0], "level": ["u", "v", "u"], "y": ["no", "yes", "no"]})
    encoding = Encoding.of(classes, ["y"])
    for values in (np.array([0.0, 1.0, 2.0]), ("u", "v", "w")):
        axes = Figure().subplots()
        columns.draw(axes, Effect("a", values, mean, std), encoding)
        assert axes.get_ylim() == (0.0, 1.0)
        (band,) = axes.collections[:1]
        assert all((path.vertices[:, 1] >= 0).all() and (path.vertices[:, 1] <= 1).all() for path in band.get_paths())


def test_the_band_of_numbers_has_no_ends():
    low, high = Effect("a", np.zeros(1), np.array([[0.9]]), np.array([[0.2]])).band()
    assert (low.item(), high.item()) == (pytest.approx(0.5), pytest.approx(1.3))
