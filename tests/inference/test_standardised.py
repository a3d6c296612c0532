import pickle

import jax
import numpy as np
import pytest
from scipy import stats

import tunbridge as tb
from toys import LeastSquares, equal, labelled, model, quick
from tunbridge.datasets import Scaling
from tunbridge.inference.standardised import fit_standardised

QUICK = tb.Ensemble(tb.MAP(train=tb.Train(60)), 2)


def _rows(offset=0.0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)) * [1.0, 100.0] + [0.0, offset]
    return x, 50.0 + 1024.0 * (x[:, 0] + 0.1 * rng.normal(size=40))


def _fit(x, y, weight=None, likelihood=None):
    return fit_standardised(QUICK, model(likelihood=likelihood), x, y, weight, key=jax.random.key(0))


@pytest.fixture(scope="module")
def fitted():
    return _fit(*_rows(), likelihood=tb.likelihoods.Gaussian(512.0))


@pytest.fixture
def binds(monkeypatch):
    """Calls of `Model.bind` so far."""
    calls, bind = [], tb.Model.bind

    def counted(self, data):
        calls.append(data)
        return bind(self, data)

    monkeypatch.setattr(tb.Model, "bind", counted)
    return calls


BRIEF = tb.MAP(train=tb.Train(3))
METHODS = {
    "ensemble": tb.Ensemble(BRIEF, 2),
    "laplace": tb.Laplace(point=BRIEF),
    "meanfield": tb.MeanField(train=tb.Train(3)),
}


@pytest.mark.parametrize("name", quick(METHODS, ("ensemble",)))
def test_a_fit_binds_model_and_data_once_and_a_standardised_one_twice(name, binds, key):
    rows = tb.Data(*_rows())
    METHODS[name].fit(model(), rows, key=key, progress=False)
    assert len(binds) == 1
    fit_standardised(METHODS[name], model(), rows.x, rows.y, key=key, progress=False)
    assert len(binds) == 3


def test_log_prob_is_of_y_in_its_units(fitted):
    """By hand: the density of the standardised value divided by sd(y)."""
    x, y = _rows()
    inner = fitted.posterior.predict((x - x.mean(0)) / x.std(0))
    by_hand = inner.log_prob((y - y.mean()) / y.std()) - np.log(y.std())
    np.testing.assert_allclose(fitted.predict(x).log_prob(y), by_hand, rtol=1e-5)
    members = [
        stats.norm(m.predict((x - x.mean(0)) / x.std(0)).mean[:, 0], 512 / y.std()) for m in fitted.posterior.members
    ]
    density = np.mean([m.pdf((y - y.mean()) / y.std()) for m in members], axis=0) / y.std()
    np.testing.assert_allclose(fitted.predict(x).log_prob(y), np.log(density), rtol=1e-4)


def test_known_noise_is_in_the_units_of_y(fitted):
    np.testing.assert_allclose(fitted.predict(_rows()[0]).aleatoric, 512.0**2, rtol=1e-5)


def test_draws_and_notes_are_those_of_the_standardised_posterior(fitted, key):
    assert equal(fitted.sample(key, 3), fitted.posterior.sample(key, 3))
    assert equal(fitted.components(key, None), fitted.posterior.components(key, None))
    assert fitted.notes == fitted.posterior.notes
    with pytest.raises(tb.InputError, match="num as a multiple of the 2 members"):
        fitted.predict(_rows()[0], num=3)
    back = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(back.predict(_rows()[0]).mean, fitted.predict(_rows()[0]).mean)


def test_digits_survive_far_from_zero(fitted):
    """Seconds since 1970, spread 100: in float32 they would be multiples of 128."""
    x, y = _rows(1.7e9)
    late = _fit(x, y + 1.7e9, likelihood=tb.likelihoods.Gaussian(512.0))
    near = fitted.predict(_rows()[0])
    np.testing.assert_allclose(late.predict(x).mean - 1.7e9, near.mean, rtol=1e-3, atol=0.5)
    np.testing.assert_allclose(late.predict(x).log_prob(y + 1.7e9), near.log_prob(y), atol=1e-3)


def test_a_weight_counts_copies_of_a_row():
    x, y = _rows()
    weight = np.arange(40) % 3
    one, two = Scaling.of(x, y, weight), Scaling.of(np.repeat(x, weight, axis=0), np.repeat(y, weight))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_column_constant_where_rows_count_keeps_scale_one():
    x = np.array([[0.1, 1.0], [0.1, 2.0], [9.0, 3.0]])
    np.testing.assert_allclose(Scaling.of(x, weight=[1, 1, 0]).x_scale, [1.0, 0.5])


def test_labels_are_not_scaled():
    data = labelled(40, features=2)
    made = model((), tb.likelihoods.Categorical())
    posterior = fit_standardised(LeastSquares(), made, data.x, data.y, key=jax.random.key(0))
    assert posterior.scaling.y_scale is None
    assert posterior.predict(data.x).probs.shape == (40, 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, y: (np.where(x > 0, x, np.nan), y), "finite numbers in x"),
        (lambda x, y: (x, y[1:]), "as many rows in y as in x"),
        (lambda x, y: (x, y, -np.ones(40)), "weights >= 0"),
        (lambda x, y: (x, y.astype(str)), "real numbers in y"),
    ],
)
def test_rows_that_cannot_be_standardised_are_refused(change, said):
    with pytest.raises(tb.InputError, match=said):
        _fit(*change(*_rows()))


def test_other_features_are_refused(fitted):
    with pytest.raises(tb.InputError, match=r"features of shape \(2,\); got shape \(3,\)"):
        fitted.predict(np.zeros((4, 3)))


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e30])
def test_numbers_of_every_size_are_standardised(size):
    x = size * np.array([[1.0, 7.0], [-1.0, 7.0], [3.0, 7.0]])
    scaled = tb.datasets.Scaling.of(x).inputs(x)
    np.testing.assert_allclose(scaled, [[0.0, 0.0], [-1.224744871, 0.0], [1.224744871, 0.0]], atol=1e-8)
