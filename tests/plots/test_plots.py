import dataclasses

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats as scipy_stats

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def chains():
    """Four chains of a straight line through zero, the last with another slope."""
    bound, rows = model((), likelihood=tb.likelihoods.Gaussian(0.5)).bind(tb.datasets.curve(jax.random.key(0), 30))
    rng = np.random.default_rng(0)
    weight, bias = 0.1 * rng.normal(size=(4, 100, 1, 1)), 0.1 * rng.normal(size=(4, 100, 1))
    weight[3] += 0.5
    params = tb.Params({"layers": [{"weight": jnp.asarray(weight), "bias": jnp.asarray(bias)}]})
    stats = {"energy": jnp.asarray(np.cumsum(rng.normal(size=(4, 100)), axis=1))}
    return rows, tb.Chains(bound, jax.random.key(0), params, stats, rows.x)


def test_trace_and_ranks_show_the_input_where_chains_agree_least(chains):
    _, posterior = chains
    x = np.array([[0.0], [0.1], [3.0]])
    axes = tb.plots.trace(posterior, x)
    assert axes.get_title().startswith("input 2: R-hat 1.")
    np.testing.assert_allclose(axes.lines[1].get_ydata(), posterior.functions(x)[1, :, 2, 0], rtol=1e-6)
    axes = tb.plots.ranks(posterior, x, bins=10)
    shares = np.array([stairs.get_data().values for stairs in axes.patches if hasattr(stairs, "get_data")])
    np.testing.assert_allclose(shares.sum(axis=0), 4.0)  # every bin of ranks is full
    assert shares[3, -1] > 2.0
    with pytest.raises(tb.InputError, match=r"a Chains.*\(Draws\)\. Pass a sampler's posterior"):
        tb.plots.trace(tb.Draws(posterior.model, posterior.key, posterior.components(posterior.key, None)))


def test_energy_shows_both_distributions_and_the_missing_information(chains):
    _, posterior = chains
    axes = tb.plots.energy(posterior)
    assert axes.get_title().startswith("E-BFMI 0.")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["energy - mean", "change from draw to draw"]
    with pytest.raises(tb.InputError, match="chains with energies; got none"):
        tb.plots.energy(tb.Chains(posterior.model, posterior.key, posterior.params, {}, posterior.inputs))


@pytest.mark.slow
def test_a_check_is_three_pictures(chains):
    rows, posterior = chains
    found = posterior.check(rows)
    density, level, tail = tb.plots.check(found)
    assert len(density.lines) == 51
    line = level.lines[0].get_xydata()
    np.testing.assert_allclose(line[[0, -1], 1], 0.0, atol=1e-12)
    assert np.abs(line[:, 1]).max() == pytest.approx(scipy_stats.kstest(found.pit[:, 0], "uniform").statistic)
    np.testing.assert_allclose(tail.collections[0].get_offsets()[:, 1], found.loo.khat)
    (alone,) = tb.plots.check(dataclasses.replace(found, loo=None, pit=None))
    assert alone.get_xlabel() == "y"
    with pytest.raises(tb.InputError, match="3 axes; got 1"):
        tb.plots.check(found, axes=[density])
    labels = np.arange(30) % 3
    classes = dataclasses.replace(found, observed=labels, replicated=np.tile(labels, (50, 1)))
    bars = tb.plots.check(classes)[0].patches
    np.testing.assert_allclose([bar.get_height() for bar in bars], 1 / 3)


def test_quantities_with_uneven_ranks_are_drawn_bold():
    even, draws = (np.arange(100) + 0.5) / 100, np.full(100, 50)
    found = tb.diagnostics.Calibration({"f": even, "noise": even**2}, {"f": draws, "noise": draws})
    lines = {line.get_label(): line.get_linewidth() for line in tb.plots.sbc(found).get_lines()}
    assert lines["noise"] > 2 > lines["f"]


@pytest.mark.slow
def test_priors_show_a_curve_each_and_functions_a_line_each(key):
    zoo = {"normal": tb.priors.Normal(1.0), "laplace": tb.priors.Laplace(1.0)}
    for draw in (tb.plots.densities, tb.plots.influence):
        axes = draw(zoo, np.array([-1.0, 0.5, 2.0]))
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["normal", "laplace"]
    assert axes.lines[0].get_ydata() == pytest.approx([-1.0, 0.5, 2.0])
    assert axes.lines[1].get_ydata() == pytest.approx([-1.0, 1.0, 1.0])
    model = tb.Model(tb.networks.MLP((3,), outputs=1), zoo["normal"], tb.likelihoods.Gaussian(1.0))
    assert len(tb.plots.prior_functions(model, np.linspace(-1, 1, 5), key=key, num=4).lines) == 4
    with pytest.raises(tb.InputError, match="x of shape"):
        tb.plots.prior_functions(model, np.zeros((5, 2)), key=key)
