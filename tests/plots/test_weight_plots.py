import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.contour import QuadContourSet

import tunbridge as tb
from toys import model


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_signal_to_noise_shows_where_a_fraction_lies():
    ratios = {"w": np.linspace(-30.0, 29.0, 60).reshape(6, 10), "b": np.array([-np.inf, -300.0])}
    density, share = tb.plots.signal_to_noise(ratios, removed=(0.5,))
    line, at = share.lines
    assert line.get_xdata()[:2] == pytest.approx([-60.0, -60.0])
    np.testing.assert_allclose(line.get_ydata(), np.arange(1, 63) / 62)
    assert at.get_xdata()[0] == density.lines[0].get_xdata()[0] == -1.0  # 31 of 62 are below
    with pytest.raises(tb.InputError, match="two axes; got 1"):
        tb.plots.signal_to_noise(ratios, axes=[density])


def test_pruning_has_a_line_for_each_way_and_leaves_out_empty_networks():
    rows = [
        {"by": by, "removed": removed, "kept": 10, "error": removed * scale, "NLL": removed}
        for by, scale in (("snr", 0.1), ("magnitude", 0.2))
        for removed in (1.0, 0.5, 0.0)
    ]
    axes = tb.plots.pruning(rows)
    for line, ends in zip(axes.lines, ([0.0, 5.0], [0.0, 10.0]), strict=True):
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([[1.0, 0.5], ends]))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["by snr", "by magnitude"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "50"]
    assert axes.xaxis_inverted()
    assert tb.plots.pruning(rows, score="NLL").get_ylabel() == "NLL"
    with pytest.raises(tb.InputError, match="rows with RMSE; got error, NLL"):
        tb.plots.pruning(rows, score="RMSE")


def test_weights_of_an_ensemble_are_histograms_too():
    bound, rows = model(()).bind(tb.datasets.curve(jax.random.key(0), 10))
    points = [tb.Point(bound, jax.random.key(0), bound.sample_params(jax.random.key(i), rows.x)) for i in range(2)]
    axes = tb.plots.weight_histograms(tb.Mixture(bound, jax.random.key(1), tuple(points)))
    for row, name in enumerate(("weight", "bias")):  # the first weight is on top
        places = sorted(float(point.params.weights["layers"][0][name].ravel()[0]) for point in points)
        edges = axes.patches[2 * row].get_data().edges
        np.testing.assert_allclose(edges[[0, -1]], places, rtol=1e-5)


@pytest.mark.slow
def test_weights_are_histograms_and_a_network_is_a_line_in_each():
    bound, _ = model(()).bind(tb.datasets.curve(jax.random.key(0), 10))
    rng = np.random.default_rng(0)
    weight, bias = 2.0 + 0.1 * rng.normal(size=(50, 1, 1)), rng.normal(size=(50, 1))
    params = tb.Params({"layers": [{"weight": jnp.asarray(weight), "bias": jnp.asarray(bias)}]})
    draws = tb.Draws(bound, jax.random.key(0), params)
    axes = tb.plots.weight_histograms(draws, draws)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["layers/0/weight[0, 0]", "layers/0/bias[0]"]
    lines = np.array(axes.collections[0].get_segments())[:, 0]
    np.testing.assert_allclose(lines, [[weight[0, 0, 0], 0.0], [bias[0, 0], 1.0]], rtol=1e-6)
    edges = axes.patches[0].get_data().edges
    assert edges[0] >= weight.min() - 1e-6
    assert edges[-1] <= weight.max() + 1e-6
    assert len(tb.plots.weight_histograms(draws, numbers=[1]).patches) == 2
    with pytest.raises(tb.InputError, match="numbers from 0 to 1; got"):
        tb.plots.weight_histograms(draws, numbers=[2])


def test_averaging_ends_at_the_score_of_all_networks_and_falls():
    class Three:
        def log_probs(self, y):
            return np.log([[0.1, 0.9], [0.5, 0.5], [0.9, 0.2]])

    axes = tb.plots.averaging(Three(), np.zeros(2), label="three")
    nll = axes.lines[0].get_ydata()
    assert nll[0] == pytest.approx(-Three().log_probs(None).mean())
    assert nll[-1] == pytest.approx(-np.log([0.5, 1.6 / 3]).mean())
    assert (np.diff(nll) < 0).all()
    assert tb.plots.averaging(Three(), np.zeros(2), axes=axes).lines[1].get_color() != axes.lines[0].get_color()


def test_ellipses_hold_their_mass():
    mean, covariance = np.array([1.0, -1.0]), np.array([[2.0, 0.9], [0.9, 1.0]])
    axes = tb.plots.ellipses(mean, covariance, masses=(0.3, 0.8), label="q")
    for line, mass in zip(axes.lines, (0.3, 0.8), strict=False):
        off = line.get_xydata() - mean
        square = np.einsum("ni,ij,nj->n", off, np.linalg.inv(covariance), off)
        np.testing.assert_allclose(1 - np.exp(-square / 2), mass)
    again = tb.plots.ellipses(mean, np.diag([1.0, 0.0]), axes=axes)
    assert again.lines[-1].get_color() != axes.lines[0].get_color()
    with pytest.raises(tb.InputError, match=r"masses between 0 and 1; got \(90,\)"):
        tb.plots.ellipses(mean, covariance, masses=(90,))
    with pytest.raises(tb.InputError, match=r"got \(3,\) and \(2, 2\)"):
        tb.plots.ellipses(np.zeros(3), covariance)
    with pytest.raises(tb.InputError, match="without negative eigenvalues; got -1"):
        tb.plots.ellipses(mean, np.array([[1.0, 2.0], [2.0, 1.0]]))


def test_contours_of_a_normal_density_are_its_ellipses():
    precision = np.linalg.inv([[2.0, 0.9], [0.9, 1.0]]).astype(np.float32)
    grid = np.linspace(-8, 8, 161)
    axes = tb.plots.contours(lambda w: 3.0 - 0.5 * w @ precision @ w, grid, grid, masses=(0.5, 0.9))
    (found,) = [part for part in axes.get_children() if isinstance(part, QuadContourSet)]
    np.testing.assert_allclose(found.levels[:2], [0.1, 0.5], rtol=0.05)  # the height at mass m is 1 - m


def test_a_path_ends_in_the_last_ellipse_alone_bold():
    means, covariances = np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 3.0]]), np.stack([np.eye(2)] * 3)
    axes = tb.plots.path(means, covariances)
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    np.testing.assert_allclose([line.get_xydata()[0] for line in dots], means)
    assert dots[0].get_color() == dots[1].get_color() != dots[2].get_color()
    assert any(np.array_equal(line.get_xydata(), means) for line in axes.lines)
