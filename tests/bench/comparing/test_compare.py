import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import labelled
from tunbridge.bench.baselines import process
from tunbridge.inference.base import Method

QUICK = {"map": tb.MAP(train=tb.Train(200)), "ensemble": tb.Ensemble(tb.MAP(train=tb.Train(200)), 3)}
UNKNOWN = tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))


def _split(scale=1.0, shift=0.0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3)) * [1.0, 50.0, 0.01] + 7
    y = shift + scale * (x[:, 0] - 7 + 0.3 * rng.normal(size=120))
    return tb.Data(x[:90], y[:90]), tb.Data(x[90:], y[90:])


def _model(likelihood=UNKNOWN):
    return tb.Model(tb.networks.MLP((10,)), tb.priors.Normal(tb.priors.fan_in(1.0)), likelihood)


def test_figures_are_in_the_units_of_the_data(key):
    """A power of two changes no digit of the standardised rows, so the fits are the same."""
    one = tb.compare(_model(), *_split(), QUICK, baselines=False, key=key).rows
    big = tb.compare(_model(), *_split(1024.0), QUICK, baselines=False, key=key).rows
    for a, b in zip(one, big, strict=True):
        assert b["RMSE"] == pytest.approx(1024 * a["RMSE"], rel=1e-4)
        assert b["CRPS"] == pytest.approx(1024 * a["CRPS"], rel=1e-4)
        assert b["NLL"] == pytest.approx(a["NLL"] + np.log(1024), abs=1e-4)
        assert b["90 % coverage"] == a["90 % coverage"]


@pytest.mark.slow
def test_known_noise_is_in_the_units_of_the_data(key):
    table = tb.compare(
        _model(tb.likelihoods.Gaussian(300.0)), *_split(1000.0), {"map": QUICK["map"]}, baselines=False, key=key
    )
    np.testing.assert_allclose(table.predictives["map"].aleatoric, 300.0**2, rtol=1e-4)


@pytest.mark.slow
def test_classes_get_their_own_columns(key):
    data = labelled(150)
    train, test = tb.datasets.split(data, key)
    table = tb.compare(_model(tb.likelihoods.Categorical()), train, test, QUICK, baselines=False, key=key)
    assert list(table.rows[0]) == ["method", "accuracy", "NLL", "Brier", "ECE", "seconds"]
    assert table.rows[0]["accuracy"] > 0.8
    assert "ensemble" in str(table)


def test_methods_by_name_by_object_and_all(key):
    one = tb.compare(_model(), *_split(), [tb.MAP(train=tb.Train(5)), "ridge"], baselines=False)
    assert [row["method"] for row in one.rows] == ["map", "ridge"]
    with pytest.raises(tb.InputError, match="map twice"):
        tb.compare(_model(), *_split(), [QUICK["map"], QUICK["map"]])
    with pytest.raises(tb.InputError, match="a method of auto, map, ensemble"):
        tb.compare(_model(), *_split(), ["nutz"])
    with pytest.raises(tb.InputError, match="each text or a Method"):
        tb.compare(_model(), *_split(), [3])


class Broken(Method):
    def posteriors(self, model, data, key, size, options):
        raise RuntimeError("out of order\nin many ways")


def test_a_method_that_fails_is_a_row_that_says_so():
    methods = {"broken": Broken(), "ridge": tb.bench.Ridge()}
    table = tb.compare(_model(), *_split(), methods, baselines=False)
    assert [row["method"] for row in table.rows] == ["broken", "ridge"]
    assert np.isnan(table.rows[0]["NLL"])
    assert table.failures == {"broken": "out of order"}
    assert table.best == "ridge"
    assert "broken is not compared: out of order" in str(table)
    with pytest.raises(tb.InputError, match="a method of ridge"):
        table.predict("broken", _split()[1].x)
    with pytest.raises(RuntimeError, match="out of order"):
        tb.compare(_model(), *_split(), methods, baselines=False, strict=True)
    with pytest.raises(RuntimeError, match="out of order"):
        tb.compare(_model(), *_split(), {"broken": Broken()})


@pytest.mark.slow
def test_baselines_are_in_every_table_unless_they_do_not_take_its_rows(monkeypatch):
    monkeypatch.setattr(process, "_MOST", 50)
    table = tb.compare(_model(), *_split(1000.0, 5e4), {"map": QUICK["map"]})
    assert [row["method"] for row in table.rows] == ["map", "ridge", "boosting", "map calibrated"]
    assert "at most 50 rows for a Gaussian process; got 90" in table.failures["gp"]
    assert table.recommendation.method == "map"
    assert "ridge" in str(table.recommendation)  # the truth is a line
    assert "better than every method here" in str(table.recommendation)
    assert 250 < table.rows[1]["RMSE"] < 400
    assert [list(row) for row in table.costs] == [["method", "networks", "ms a row", "MB"]] * 4
    assert all(row["networks"] == 1 and row["ms a row"] > 0 and row["MB"] > 0 for row in table.costs)
    assert max(len(line) for line in str(table).splitlines()[:6]) <= 120


@pytest.mark.slow
def test_a_fit_that_was_cut_is_marked_and_not_recommended():
    methods = {"map": tb.MAP(train=tb.Train(10**8)), "ridge": tb.bench.Ridge(), "gp": tb.bench.Process()}
    table = tb.compare(_model(), *_split(), methods, baselines=False, max_seconds=0.05)
    assert list(table.cuts) == ["map"]
    assert [row["stopped"].split(" of ")[-1] for row in table.rows] == ["100,000,000", "", ""]
    assert table.best != "map"
    assert "map" not in {table.recommendation.method, table.recommendation.best, *table.recommendation.differences}
    assert "of 100,000,000 steps by the limit of 0.05 seconds: not run to convergence." in " ".join(str(table).split())
    alone = tb.compare(_model(), *_split(), {"map": methods["map"]}, baselines=False, max_seconds=0.05)
    assert alone.best == "map"
    assert [sentence.split(" after ")[0] for sentence in alone.sentences] == ["map: stopped"]


def test_an_answer_costs_a_network_a_draw(key):
    train, test = _split()
    ensemble = tb.compare(_model(), train, test, {"ensemble": QUICK["ensemble"]}, baselines=False, key=key)
    assert ensemble.costs[0]["networks"] == 3


def test_the_same_key_gives_the_same_figures():
    one, two = (tb.compare(_model(), *_split(), {"map": QUICK["map"]}, baselines=False).rows[0] for _ in range(2))
    one.pop("seconds"), two.pop("seconds")
    assert one == two


def test_other_inputs_can_be_predicted_in_units():
    train, test = _split(1000.0, 5e4)
    table = tb.compare(_model(), train, test, {"map": QUICK["map"]}, baselines=False)
    np.testing.assert_allclose(table.predict("map", test.x).mean, table.predictives["map"].mean, rtol=1e-6)


def test_scaling_uses_training_rows_and_leaves_constants_and_labels():
    train = tb.Data([[1.0, 5.0], [3.0, 5.0]], [0, 1])
    scaling = tb.datasets.Scaling.of(train.x)
    np.testing.assert_allclose(scaling.x_scale, [1.0, 1.0])
    np.testing.assert_allclose(scaling.apply(train).x, [[-1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(scaling.apply(train).y, [0, 1])
    other = scaling.apply(tb.Data([[9.0, 6.0]], [1]))
    np.testing.assert_allclose(other.x, [[7.0, 1.0]])


def test_split_is_a_partition(key):
    data = tb.datasets.curve(key, 50)
    train, test = tb.datasets.split(data, key, 0.3)
    assert (train.num, test.num) == (35, 15)
    both = np.sort(np.concatenate([train.x, test.x])[:, 0])
    np.testing.assert_array_equal(both, np.sort(np.asarray(data.x)[:, 0]))
    with pytest.raises(tb.InputError, match="rows in both parts"):
        tb.datasets.split(data, key, 0.0)


@pytest.mark.parametrize("name", ["diabetes", "breast_cancer", "wine", "digits"])
def test_bundled_data_has_its_size(name):
    data = getattr(tb.datasets, name)()
    wanted = {"diabetes": (442, 10), "breast_cancer": (569, 30), "wine": (178, 13), "digits": (1797, 64)}[name]
    assert data.x.shape == wanted
    assert data.y.ndim == (2 if name == "diabetes" else 1)


@pytest.mark.parametrize("name", ["curve", "funnel", "moons"])
def test_toy_data_follows_its_key(name, key):
    make = getattr(tb.datasets, name)
    one, two, other = make(key, 30), make(key, 30), make(jax.random.key(0), 30)
    np.testing.assert_array_equal(one.x, two.x)
    assert not np.array_equal(one.x, other.x)
    assert one.num == 30
