"""A reference is what its checks say it is, and tells near methods from far ones."""

import dataclasses

import jax
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.bench import ReferenceError, fidelity, load_reference, make_reference, references
from tunbridge.bench.truth.recipes import RECIPES, halves
from tunbridge.bench.truth.reference import AMONG, BETWEEN, BEYOND, opening
from tunbridge.core import archive

INPUTS = np.linspace(-2.0, 2.0, 5)[:, None]


@pytest.fixture(scope="module")
def shipped():
    return load_reference("curve")


@pytest.fixture(scope="module")
def line():
    """A straight line through four points, by NUTS: the same shapes throughout."""
    model = tb.Model(tb.networks.MLP((), outputs=1), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
    return model, tb.Data([[-1.0], [0.0], [0.5], [1.0]], [0.3, 0.1, 0.4, 0.9])


def straight(likelihood, outputs, key):
    """One line, drawn from the prior."""
    model = tb.Model(tb.networks.MLP((), outputs=outputs), tb.priors.Normal(1.0), likelihood)
    bound, rows = model.bind(tb.Data(INPUTS, [0, 0, 0, 1, 1]))
    return tb.Point(bound, key, jax.jit(bound.sample_params)(key, rows.x))


def nuts(draws):
    return tb.NUTS(run=tb.Run(chains=2, warmup=300, draws=draws))


def test_the_shipped_reference_has_passed_its_checks(shipped):
    assert shipped.checks["R-hat"] < 1.01
    assert shipped.checks["means apart"] < 0.1
    assert shipped.checks["deviations apart"] < 0.1
    assert shipped.predictions.shape == (400, 50, 1)
    assert shipped.predictions.dtype == np.float32
    assert shipped.noise.shape == (400, 1)
    assert 0.03 < shipped.noise.mean() < 0.3  # the data has noise 0.1
    np.testing.assert_array_equal(shipped.x, RECIPES["curve"]().inputs)
    assert shipped.provenance["rows"] == RECIPES["curve"]().data.num
    assert tuple(shipped.provenance["key"]) == tuple(np.asarray(jax.random.key_data(RECIPES["curve"]().key)))
    assert "R-hat" in str(shipped)
    assert "<caption>reference curve</caption>" in shipped._repr_html_()


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("diabetes", (400, 88, 1), False),
        ("diabetes_gap", (400, 130, 1), False),
        ("breast_cancer", (400, 114, 2), True),
        ("wine", (400, 36, 3), True),
    ],
)
def test_references_of_tables_belong_to_the_rows_their_recipe_holds_out(name, shape, classes):
    found, recipe = load_reference(name), RECIPES[name]()
    assert all(found.checks[check] < limit for check, limit in (("R-hat", 1.01), ("means apart", 0.1)))
    assert found.checks["deviations apart"] < 0.1
    assert (found.predictions.shape, found.classes) == (shape, classes)
    assert found.noise.shape == (400, 0 if classes else 1)
    np.testing.assert_allclose(found.x, recipe.inputs, rtol=1e-5, atol=1e-6)
    train, test = halves(name)
    assert found.provenance["rows"] == train.num == recipe.data.num
    assert test.num == len(found.x)
    if classes:
        assert np.mean(found.probs.argmax(axis=1) == np.asarray(test.y).reshape(-1)) > 0.95


@pytest.mark.slow
def test_a_point_is_far_from_the_reference_and_half_of_it_near(shipped, key):
    recipe = RECIPES["curve"]()
    point = fidelity(tb.MAP(train=tb.Train(300)).fit(recipe.model, recipe.data, key=key, progress=False), shipped)
    assert point["sliced_wasserstein"] > 3 * point["between_halves"]
    assert point["sd_ratio"] < 0.01
    half = dataclasses.replace(shipped, predictions=shipped.predictions[::2])
    same = tb.metrics.sliced_wasserstein(half.predictions, shipped.predictions, key)
    assert same < point["between_halves"]


@pytest.mark.slow
def test_another_sampler_finds_the_same_functions(shipped, key):
    recipe = RECIPES["curve"]()
    near = fidelity(tb.MCLMC().fit(recipe.model, recipe.data, key=key, progress=False), shipped)
    assert near["sliced_wasserstein"] < 1.5 * near["between_halves"]
    assert near["mean_error"] < 0.15
    assert near["sd_ratio"] == pytest.approx(1.0, abs=0.1)


@pytest.fixture(scope="module")
def made(line, tmp_path_factory):
    """A reference of the line, and the folder with one file that it is in."""
    folder = tmp_path_factory.mktemp("references")
    places = [BEYOND, AMONG, BETWEEN, AMONG, BEYOND]
    options = {"name": "line", "draws": 50, "places": places, "checkpoint": folder / "runs"}
    made = make_reference(*line, INPUTS, nuts(1500), jax.random.key(0), **options)
    made.save(folder / "line.npz")
    return made, folder


def test_runs_that_agree_are_a_reference_and_come_back_to_the_bit(made):
    made, folder = made
    found = load_reference(folder / "line.npz")
    assert (found.name, found.checks, found.provenance) == ("line", made.checks, made.provenance)
    for name in ("x", "predictions", "noise", "places"):
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
    assert found.predictions.shape == (50, 5, 1)
    assert found.noise.shape == (50, 0)


def test_runs_that_do_not_agree_are_refused_with_their_numbers(line, key):
    with pytest.raises(ReferenceError, match=r"not a reference: .*apart 0\.\d+, limit 0\.1.*Run longer chains"):
        make_reference(*line, INPUTS, nuts(20), key)


def test_what_cannot_be_checked_is_refused(line, key):
    with pytest.raises(tb.InputError, match="a sampler of several chains"):
        make_reference(*line, INPUTS, tb.MAP(), key)
    with pytest.raises(tb.InputError, match="temperature 1"):
        make_reference(*line, INPUTS, tb.HMC(run=tb.Run(temperature=2.0)), key)


def test_other_files_and_other_inputs_are_refused(shipped, tmp_path, key):
    with pytest.raises(tb.InputError, match="one of breast_cancer, curve, diabetes, diabetes_gap, wine"):
        load_reference("nothing")
    archive.write(tmp_path / "other.npz", {"kind": "another"}, {})
    with pytest.raises(tb.LoadError, match="not a reference file"):
        load_reference(tmp_path / "other.npz")
    with pytest.raises(tb.InputError, match="functions of shape"):
        fidelity(straight(tb.likelihoods.Gaussian(0.5), 1, key).predict(INPUTS), shipped)


def test_classes_are_compared_by_their_probabilities(key):
    posterior = straight(tb.likelihoods.Categorical(2), 2, key)
    functions = np.repeat(np.asarray(posterior.predict(INPUTS).functions), 4, axis=0)
    reference = tb.bench.Reference("line", INPUTS, functions, np.zeros((4, 0)), True, {}, {})
    assert fidelity(posterior, reference) == {
        "sliced_wasserstein": pytest.approx(0.0, abs=1e-6),
        "between_halves": 0.0,
        "agreement": 1.0,
        "total_variation": pytest.approx(0.0, abs=1e-6),
    }


def test_a_run_goes_on_from_its_checkpoint(made, line):
    """Both runs are whole on disk: made again with as many seconds as reading them takes, nothing differs."""
    made, folder = made
    assert sorted(path.name for path in (folder / "runs").iterdir()) == ["0", "1"]
    again = make_reference(*line, INPUTS, nuts(1500), jax.random.key(0), draws=50, checkpoint=folder / "runs")
    np.testing.assert_array_equal(again.predictions, made.predictions)


def test_names_are_looked_up_in_a_folder_but_the_package_keeps_its_own(made, shipped, monkeypatch):
    made, folder = made
    made.save(folder / "curve.npz")
    assert references(folder)["line"] == folder / "line.npz"
    assert "line" not in references()
    with pytest.raises(tb.InputError, match="diabetes_gap, wine; got line"):
        load_reference("line")
    assert load_reference("line", folder).name == "line"
    monkeypatch.setenv("TUNBRIDGE_REFERENCES", str(folder))
    assert load_reference("line").name == "line"
    np.testing.assert_array_equal(load_reference("curve").predictions, shipped.predictions)


def test_the_opening_of_a_gap_is_the_ratio_of_deviations():
    """Deviations 1 and 4 among the data (geometric mean 2), 6 in the gap: 3, whatever lies beyond."""
    draws = np.array([-1.0, 1.0])[:, None, None] * np.array([1.0, 4.0, 6.0, 100.0])[None, :, None]
    places = np.array([AMONG, AMONG, BETWEEN, BEYOND])
    assert opening(draws, places) == pytest.approx(3.0)
    assert opening(draws[:1], places) == 0.0


def test_the_in_between_ratio_is_one_for_the_reference_and_small_for_what_does_not_open(shipped):
    def judged(functions):
        predictive = type("Functions", (), {"functions": functions})()
        return fidelity(predictive, shipped)["in_between"]

    assert judged(shipped.predictions) == pytest.approx(1.0)
    assert opening(shipped.predictions, shipped.places) > 3
    level = np.random.default_rng(0).normal(size=(200, 50, 1))
    assert judged(level) == pytest.approx(1 / opening(shipped.predictions, shipped.places), rel=0.1)
    assert judged(level[:1]) == 0.0


def test_places_without_a_gap_are_refused(line, key):
    with pytest.raises(tb.InputError, match=r"0 among the data, 1 between, 2 beyond"):
        make_reference(*line, INPUTS, nuts(20), key, places=[0, 0, 0, 0, 2])
    with pytest.raises(tb.InputError, match=r"places of 5 inputs"):
        make_reference(*line, INPUTS, nuts(20), key, places=[0, 1])
