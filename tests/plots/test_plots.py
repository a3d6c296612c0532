import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

import tunbridge as tb
from toys import labelled, model


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def curve():
    data = tb.datasets.curve(jax.random.key(0), 30)
    return data, tb.Ensemble(tb.MAP(train=tb.Train(100)), 3).fit(model(), data, key=jax.random.key(1))


def test_band_shows_the_mean_the_intervals_and_the_data(curve):
    data, posterior = curve
    x = np.linspace(2, -2, 50)[:, None]  # backwards: the line must still run left to right
    predictive = posterior.predict(x)
    axes = tb.plots.band(predictive, x, data=data)
    mean, points = axes.lines
    np.testing.assert_allclose(mean.get_ydata(), np.asarray(predictive.mean)[::-1, 0])
    assert (np.diff(mean.get_xdata()) > 0).all()
    assert len(points.get_xdata()) == 30
    assert [text.get_text() for text in axes.get_legend().get_texts()][:2] == ["90% interval", "50% interval"]


def test_split_shows_both_parts(curve):
    x = np.linspace(-2, 2, 50)[:, None]
    predictive = curve[1].predict(x)
    axes = tb.plots.split(predictive, x, axes=plt.subplots()[1])
    np.testing.assert_allclose(axes.lines[0].get_ydata() ** 2, predictive.aleatoric[:, 0], rtol=1e-5)
    np.testing.assert_allclose(axes.lines[1].get_ydata() ** 2, predictive.epistemic[:, 0], rtol=1e-5, atol=1e-9)
    with pytest.raises(tb.InputError, match="x of the predictive's 50 points"):
        tb.plots.split(predictive, x[:9])


def test_calibration_ends_at_one_and_holds_the_coverage(curve):
    data, posterior = curve
    predictive = posterior.predict(data.x)
    axes = tb.plots.calibration(predictive, data.y, label="ensemble")
    masses, observed = axes.lines[1].get_data()
    assert observed[-1] == 1.0
    wanted = tb.metrics.coverage(predictive, data.y, 0.5)
    assert observed[np.argmin(np.abs(masses - 0.5))] == pytest.approx(wanted, abs=0.04)
    again = tb.plots.calibration(predictive, data.y, label="again", axes=axes)
    assert again.lines[1].get_color() != again.lines[2].get_color()


def test_reliability_shows_accuracy_against_confidence():
    data = labelled(200)
    posterior = tb.MAP(train=tb.Train(100)).fit(
        model(likelihood=tb.likelihoods.Categorical()), data, key=jax.random.key(0)
    )
    axes = tb.plots.reliability(posterior.predict(data.x), data.y, bins=5)
    confidence, accuracy = axes.lines[1].get_data()
    assert len(confidence) == 5
    assert ((accuracy >= 0) & (accuracy <= 1)).all()
    split = tb.plots.split(posterior.predict(data.x), data.x)
    assert split.get_ylabel() == "uncertainty in nats"
