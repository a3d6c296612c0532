import pickle

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score, train_test_split

import tunbridge as tb
from toys import LeastSquares, equal
from tunbridge.core.data import capacity_for

LINEAR = {"method": LeastSquares(), "network": tb.networks.MLP(()), "prior": tb.priors.Normal(1.0)}
NOISE = 0.3
KNOWN = tb.likelihoods.Gaussian(NOISE)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = 5.0 + X @ [2.0, -1.0] + NOISE * RNG.normal(size=40)


def linear(likelihood=KNOWN):
    return tb.BayesianRegressor(**LINEAR, likelihood=likelihood)


def trained(**options):
    """Two networks that took steps, with noise and prior scale unknown."""
    method, unknown = tb.Ensemble(tb.MAP(train=tb.Train(60)), 2), tb.likelihoods.Gaussian(dist.HalfNormal(1.0))
    return tb.BayesianRegressor(method, tb.networks.MLP((4,)), likelihood=unknown, random_state=0, **options)


@pytest.fixture(scope="module")
def fitted():
    return trained().fit(X, Y)


@pytest.mark.parametrize(("of_x", "of_y"), [(0.01, 1.0), (100.0, 1.0), (1.0, 0.01), (1.0, 100.0)])
def test_units_do_not_matter(fitted, of_x, of_y):
    other = trained().fit(X * of_x, Y * of_y)
    for one, two in zip(fitted.predict(X, return_std=True), other.predict(X * of_x, return_std=True), strict=True):
        np.testing.assert_allclose(two / of_y, one, rtol=1e-3, atol=1e-3)
    assert other.score(X * of_x, Y * of_y) == pytest.approx(fitted.score(X, Y), abs=1e-3)


def test_rows_of_another_number_of_the_same_capacity_compile_nothing(compiled):
    """As in the folds of a cross-validation, whose lengths differ by one."""
    for num in (len(X), len(X) - 1):
        assert capacity_for(num) == 48
        compiled.clear()
        trained().fit(X[:num], Y[:num]).predict(X[:num], return_std=True)
    assert compiled == []


@pytest.mark.slow
def test_a_second_cross_validation_compiles_nothing(compiled):
    x, y = np.tile(X, (2, 1))[:65], np.tile(Y, 2)[:65]  # folds of 22, 22 and 21 rows
    for shift in (0.0, 1.0):
        compiled.clear()
        cross_val_score(trained(), x + shift, y, cv=3)
    assert compiled == []


def test_the_density_is_that_of_y_with_the_known_noise_in_its_units():
    """By hand: one network and known noise make N(mean, noise^2), whatever y was divided by on the way."""
    for scale in (0.01, 1.0, 100.0):
        made = linear(tb.likelihoods.Gaussian(NOISE * scale)).fit(X, Y * scale)
        mean, std = made.predict(X, return_std=True)
        np.testing.assert_allclose(std, NOISE * scale, rtol=1e-5)
        by_hand = stats.norm(mean, NOISE * scale).logpdf(Y * scale)
        np.testing.assert_allclose(made.predictive(X).log_prob(Y * scale), by_hand, atol=1e-4)
        lower, upper = made.predict_interval(X, 0.8)
        np.testing.assert_allclose(lower, stats.norm(mean, NOISE * scale).ppf(0.1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(made.predict_quantiles(X, [0.1, 0.9]), [lower, upper])
        assert made.predict_quantiles(X, 0.5).shape == (40,)


@pytest.mark.slow
@pytest.mark.parametrize("method", [tb.GibbsMetropolis, tb.ReversibleJump])
def test_a_method_for_shallow_networks_fits_where_nothing_else_is_named(method):
    fitted = tb.BayesianRegressor(method(run=tb.Run(2, 100, 100)), random_state=0).fit(X, Y)
    assert isinstance(fitted.posterior_.posterior.model.network, tb.networks.Shallow)
    assert fitted.score(X, Y) > 0.95


def test_methods_for_shallow_networks_bring_their_model():
    short = tb.GibbsMetropolis(run=tb.Run(2, 100, 100))
    small = tb.BayesianRegressor(short, network=(3,), random_state=0)
    assert small.get_params()["network__units"] == 3
    with pytest.raises(tb.InputError, match="one hidden layer"):
        tb.BayesianRegressor(short, network=(3, 3)).fit(X, Y)
    with pytest.raises(tb.InputError, match="Shallow, Exchangeable and Gaussian"):
        tb.BayesianRegressor(short, prior="normal").fit(X, Y)


def test_columns_far_from_zero_and_constant_ones_do_no_harm():
    """Seconds since 1970 that spread by 100, of which float32 keeps nothing, and a column of 7s."""
    late = np.column_stack([X[:, 0] * 100 + 1.7e9, X[:, 1], np.full(40, 7.0)])
    np.testing.assert_allclose(linear().fit(late, Y).predict(late), linear().fit(X, Y).predict(X), atol=1e-4)
    made = linear().fit(X, Y + 1.7e9)
    np.testing.assert_allclose(made.predict(X) - 1.7e9, linear().fit(X, Y).predict(X), atol=1e-4)


def test_an_ensemble_knows_what_it_does_not_know(fitted):
    predictive = fitted.predictive(np.concatenate([X, 30 * X]))
    assert isinstance(fitted.posterior_, tb.Standardised)
    assert np.median(predictive.epistemic[40:]) > np.median(predictive.epistemic[:40])
    np.testing.assert_allclose(predictive.total, predictive.aleatoric + predictive.epistemic)


def test_random_state_decides_everything_random(fitted):
    again, other = (clone(fitted).set_params(random_state=seed).fit(X, Y) for seed in (0, 1))
    assert equal(again.predict(X), fitted.predict(X))
    assert not equal(other.predict(X), fitted.predict(X))
    state = np.random.RandomState(3)
    one, two = (clone(fitted).set_params(random_state=state).fit(X, Y).predict(X) for _ in range(2))
    assert not equal(one, two)


def test_a_fit_depends_on_rows_and_weights_alone(fitted):
    """Copies, weights, order and rows of weight 0: the same evidence, the same fit to the bit, noise included."""
    order, twice = RNG.permutation(40), np.where(np.arange(40) < 10, 2, 1)
    np.testing.assert_array_equal(trained().fit(X[order], Y[order]).predict(X), fitted.predict(X))
    beside = trained().fit(np.append(X, X + 9, axis=0), np.append(Y, Y), np.repeat([1, 0], 40))
    np.testing.assert_array_equal(beside.predict(X), fitted.predict(X))
    copied = trained().fit(np.repeat(X, twice, axis=0), np.repeat(Y, twice))
    np.testing.assert_array_equal(trained().fit(X, Y, twice).predict(X), copied.predict(X))


def test_the_answer_for_a_row_does_not_depend_on_its_company(fitted):
    """To rounding: products of other sizes add up in another order."""
    alone, among, many = (fitted.predict(rows)[:3] for rows in (X[:3], X, np.tile(X, (4, 1))))
    np.testing.assert_allclose(among, alone, rtol=1e-6)
    np.testing.assert_allclose(many, alone, rtol=1e-6)


def test_several_outputs_keep_their_columns_and_a_flat_y_stays_flat():
    both = np.column_stack([Y, 100 - 3 * Y])
    made = linear().fit(X, both)
    assert made.n_outputs_ == 2
    mean, std = made.predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 0], linear().fit(X, Y).predict(X), atol=1e-4)
    assert std.shape == made.predict_interval(X)[0].shape == (40, 2)
    assert made.predict_quantiles(X, [0.2, 0.5, 0.8]).shape == (3, 40, 2)
    assert linear().fit(X, Y[:, None]).predict(X).shape == (40, 1)


def test_a_fitted_estimator_survives_pickling(fitted):
    back = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(back.predict(X), fitted.predict(X))


def test_a_checkpoint_is_resumed(fitted, tmp_path):
    first = trained(checkpoint=tmp_path).fit(X, Y)
    assert list(tmp_path.iterdir())
    np.testing.assert_array_equal(first.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(trained(checkpoint=tmp_path).fit(X, Y).predict(X), fitted.predict(X))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: linear().fit(np.where(X > 1, np.nan, X), Y), "Input X contains NaN"),
        (lambda: linear().fit(X, np.where(Y > 5, np.inf, Y)), "Input y contains infinity"),
        (lambda: linear().fit(X[:, 0], Y), "Expected 2D array"),
        (lambda: linear().fit(np.full((40, 2), "a"), Y), "could not convert string to float"),
        (lambda: linear().fit(X, Y, np.zeros(40)), "Sample weights must not all be zero"),
        (lambda: linear().fit(X, Y.astype(str)), "real numbers in y"),
        (lambda: linear().fit(X, Y, -np.ones(40)), "Negative values"),
        (lambda: linear().fit(X[[0, 0, 0]], Y[[0, 0, 0]]), "at least 2 distinct rows with positive weight"),
        (lambda: linear(tb.likelihoods.Bernoulli()).fit(X, Y), "Use BayesianClassifier for classes"),
        (lambda: linear().set_params(method="nutz").fit(X, Y), "a method of auto, map, ensemble"),
        (lambda: linear().set_params(method=3).fit(X, Y), "method= as a name or a method"),
        (lambda: linear().fit(X, Y).predict(X[:, :1]), "1 features, but BayesianRegressor is expecting 2"),
        (lambda: linear().fit(X, Y).predict_interval(X, 90), "a mass between 0 and 1"),
    ],
)
def test_wrong_input_is_refused(call, said):
    with pytest.raises((ValueError, TypeError), match=said):
        call()


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True, scaled=False)


@pytest.mark.slow
def test_intervals_on_diabetes_cover_what_they_claim(diabetes):
    """As it comes, one split: 90 % intervals of 89 held-out patients cover 80 to 97 %."""
    x, more, y, truth = train_test_split(*diabetes, test_size=0.2, random_state=0)
    made = tb.BayesianRegressor(random_state=0).fit(x, y)
    lower, upper = made.predict_interval(more, 0.9)
    assert 0.80 <= np.mean((lower <= truth) & (truth <= upper)) <= 0.97
    assert made.score(more, truth) > 0.2


@pytest.mark.slow
def test_cross_validation_on_diabetes_explains_a_third_of_the_variance(diabetes):
    assert cross_val_score(tb.BayesianRegressor(random_state=0), *diabetes, cv=5).mean() > 0.3
