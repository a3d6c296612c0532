import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import log_softmax

import tunbridge as tb
from toys import labelled, model, quick, table
from tunbridge.bench.baselines import BASELINES, CalibratedMAP, Ridge, process
from tunbridge.bench.baselines.base import Rows, best_temperature, nll

UNKNOWN = tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))
CLASSES = tb.likelihoods.Categorical()
QUICK = {**BASELINES, "map calibrated": lambda: CalibratedMAP(tb.MAP(train=tb.Train(100)))}
NUMBER, CLASS = table(60, noise=0.3), labelled(60)


def _fit(name, data, likelihood, key):
    return QUICK[name]().fit(model(likelihood=likelihood), data, key=key)


@pytest.mark.parametrize("name", quick(BASELINES, ("ridge", "gp", "boosting")))
def test_numbers_are_answered_in_the_units_they_came_in(name, key):
    fitted = _fit(name, NUMBER, UNKNOWN, key)
    predictive = fitted.predict(NUMBER.x)
    assert predictive.mean.shape == predictive.std.shape == (60, 1)
    assert predictive.functions.shape[1:] == (60, 1)
    assert tb.metrics.coverage(predictive, NUMBER.y) > 0.7
    assert tb.metrics.rmse(predictive, NUMBER.y) < float(np.std(NUMBER.y))
    np.testing.assert_allclose(predictive.total, predictive.aleatoric + predictive.epistemic)
    np.testing.assert_array_equal(_fit(name, NUMBER, UNKNOWN, key).predict(NUMBER.x).mean, predictive.mean)
    assert fitted.provenance.seconds > 0
    assert fitted.notes


@pytest.mark.parametrize("name", quick(BASELINES, ("ridge", "gp", "boosting")))
def test_classes_get_probabilities(name, key):
    predictive = _fit(name, CLASS, CLASSES, key).predict(CLASS.x)
    np.testing.assert_allclose(predictive.probs.sum(axis=1), 1.0, atol=1e-5)
    assert tb.metrics.accuracy(predictive, CLASS.y) > 0.7
    assert np.isfinite(tb.metrics.log_score(predictive, CLASS.y))


@pytest.mark.parametrize("name", ["ridge", "gp", "boosting"])
def test_several_outputs_are_each_as_if_alone(name, key):
    """To rounding, which the search for a kernel amplifies."""
    y = np.column_stack([NUMBER.y[:, 0], 5.0 - 3.0 * NUMBER.y[::-1, 0]])
    both = _fit(name, tb.Data(NUMBER.x, y), UNKNOWN, key).predict(NUMBER.x)
    for output in range(2):
        alone = _fit(name, tb.Data(NUMBER.x, y[:, [output]]), UNKNOWN, key).predict(NUMBER.x)
        np.testing.assert_allclose(both.mean[:, [output]], alone.mean, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(both.std[:, [output]], alone.std, rtol=1e-4)
    assert both.log_prob(y).shape == (60,)


def test_ridge_equals_its_formula(key):
    """With a column of ones that is not penalised, which centring takes the place of."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 3)) + 4.0
    y = x @ [1.0, -2.0, 0.5] + 0.5 * rng.normal(size=40)
    fitted = _fit("ridge", tb.Data(x, y), UNKNOWN, key)
    penalty = float(fitted.notes[0].split()[3].rstrip(","))
    wide, new = (np.column_stack([np.ones(len(rows)), rows]) for rows in (x, x[:5] - 2.0))
    inverse = np.linalg.inv(wide.T @ wide + np.diag([0.0, penalty, penalty, penalty]))
    weights = inverse @ wide.T @ y
    left_out = [_left_out(wide, y, i, penalty) for i in range(40)]
    variance = np.mean([error**2 / (1 + stretch) for error, stretch in left_out])
    predictive = fitted.predict(x[:5] - 2.0)
    np.testing.assert_allclose(predictive.mean[:, 0], new @ weights, rtol=1e-3)
    np.testing.assert_allclose(predictive.aleatoric[:, 0], variance, rtol=1e-3)
    stretch = np.einsum("nf,fg,ng->n", new, inverse, new)
    np.testing.assert_allclose(predictive.epistemic[:, 0], variance * stretch, rtol=1e-3)


def _left_out(wide, y, i, penalty):
    """The error at row i of the line through the others, and how its variance is stretched there."""
    rest = np.arange(len(y)) != i
    inverse = np.linalg.inv(wide[rest].T @ wide[rest] + penalty * np.diag([0.0, 1.0, 1.0, 1.0]))
    return y[i] - wide[i] @ inverse @ wide[rest].T @ y[rest], wide[i] @ inverse @ wide[i]


def test_a_row_of_weight_two_is_two_rows_to_ridge(key):
    weight = 1.0 + (np.arange(60) % 2)
    rows = np.repeat(np.arange(60), weight.astype(int))
    one = Ridge().learn(_rows(NUMBER.x, NUMBER.y, weight), key)[0]
    two = Ridge().learn(_rows(NUMBER.x[rows], NUMBER.y[rows], np.ones(90)), key)[0]
    np.testing.assert_allclose(one.middle, two.middle)
    np.testing.assert_allclose(one.level, two.level)
    assert one.count == two.count == 90
    np.testing.assert_allclose(one.slopes, two.slopes, rtol=0.02, atol=0.002)
    np.testing.assert_allclose(one.noise, two.noise, rtol=0.02)


def _rows(x, y, weight):
    return Rows(np.asarray(x, float), np.asarray(y, float), weight, 0)


def test_draws_of_lines_have_the_variance_they_are_said_to_have(key):
    """4,000 draws: a variance is off by 2.2 % of itself (one standard error), and 12 % is five of these."""
    predictive = _fit("ridge", NUMBER, UNKNOWN, key).predict(NUMBER.x)
    drawn = predictive._draw(key, 4000)
    np.testing.assert_allclose(drawn.var(axis=0), predictive.epistemic, rtol=0.12)


def test_the_best_temperature_undoes_overconfidence():
    """Logits three times too large; 4,000 labels tell the temperature to 5 %, four standard errors."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4000, 3)) * 2
    y = np.array([rng.choice(3, p=np.exp(row)) for row in log_softmax(logits, axis=1)])
    weight = np.ones(4000)
    found = best_temperature(log_softmax(3 * logits, axis=1), y, weight)
    assert found == pytest.approx(3.0, rel=0.15)
    held = rng.normal(size=(4000, 3)) * 2
    y = np.array([rng.choice(3, p=np.exp(row)) for row in log_softmax(held, axis=1)])
    assert nll(log_softmax(3 * held / found, axis=1), y, weight) < nll(log_softmax(3 * held, axis=1), y, weight) - 0.1


@pytest.mark.slow
def test_noise_is_that_of_rows_held_out(key):
    """Labels of pure noise: 200 rows of sd 2 tell it to 5 % (one standard error of 40 held out: 11 %)."""
    rng = np.random.default_rng(1)
    data = tb.Data(rng.normal(size=(200, 2)), 2.0 * rng.normal(size=200))
    for name in ("boosting", "map calibrated", "ridge"):
        sigma = float(np.sqrt(_fit(name, data, UNKNOWN, key).predict(data.x[:1]).aleatoric[0, 0]))
        assert 1.4 < sigma < 2.8, name


def test_a_class_without_rows_is_rare_but_possible(key):
    y = np.where(np.asarray(CLASS.y) == 1, 2, np.asarray(CLASS.y))
    for name in ("ridge", "gp", "boosting"):
        probs = _fit(name, tb.Data(CLASS.x, y), CLASSES, key).predict(CLASS.x).probs
        assert probs.shape == (60, 3)
        assert (np.asarray(probs[:, 1]) > 0).all()
        assert (np.asarray(probs[:, 1]) < 0.1).all()


@pytest.mark.parametrize("likelihood", [tb.likelihoods.StudentT(3.0, 0.5), tb.likelihoods.Laplace(0.5)])
def test_other_noise_is_taken_for_normal(likelihood, key):
    assert _fit("ridge", NUMBER, likelihood, key).predict(NUMBER.x).mean.shape == (60, 1)


def test_what_does_not_fit_is_refused(key):
    counts = tb.Data(NUMBER.x, np.arange(60) % 4)
    large = tb.Data(np.zeros((2001, 1)), np.zeros(2001))
    for name in BASELINES:
        with pytest.raises(tb.InputError, match="numbers or of classes for a baseline; got Poisson"):
            _fit(name, counts, tb.likelihoods.Poisson(), key)
        with pytest.raises(tb.InputError, match="at least 10 rows"):
            _fit(name, table(9), UNKNOWN, key)
    with pytest.raises(tb.InputError, match="at most 2,000 rows"):
        _fit("gp", large, UNKNOWN, key)
    with pytest.raises(tb.InputError, match="rows without weights"):
        _fit("gp", tb.Data(NUMBER.x, NUMBER.y, np.full(60, 2.0)), UNKNOWN, key)
    with pytest.raises(tb.InputError, match="one-against-rest problems"):
        _fit("gp", labelled(400), CLASSES, key)
    with pytest.raises(tb.InputError, match="two classes"):
        _fit("ridge", tb.Data(CLASS.x, np.zeros(60, int)), CLASSES, key)
    with pytest.raises(tb.InputError, match="5,000,000 numbers"):
        _fit("boosting", tb.Data(np.zeros((51, 100_000)), np.zeros(51)), UNKNOWN, key)
    fitted = _fit("ridge", NUMBER, UNKNOWN, key)
    for ask in (lambda: fitted.sample(key, 3), lambda: fitted.save("nowhere"), lambda: fitted.predict(NUMBER.x[:, :2])):
        with pytest.raises(tb.InputError):
            ask()


@pytest.mark.slow
def test_a_process_of_many_rows_learns_its_kernel_from_some(key, monkeypatch):
    monkeypatch.setattr(process, "_TUNED_BY", 40)
    data = table(80, noise=0.1)
    fitted = _fit("gp", data, UNKNOWN, key)
    assert fitted.learnt.each[0].centres.shape == (80, 3)
    assert tb.metrics.rmse(fitted.predict(data.x), data.y) < 0.2
