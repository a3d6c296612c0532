import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score
from sklearn.utils import compute_sample_weight

import tunbridge as tb
from toys import LeastSquares

LINEAR = {"method": LeastSquares(), "network": tb.networks.MLP(()), "prior": tb.priors.Normal(1.0)}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)) * [1.0, 100.0]
WHICH = (X[:, 0] > 0.7).astype(int) + (X[:, 0] > -0.7)
NAMES = np.array(["low", "middle", "high"])[WHICH]


def linear(**options):
    return tb.BayesianClassifier(**LINEAR, **options)


def test_labels_come_back_as_they_were_given():
    made = linear().fit(X, NAMES)
    assert made.classes_.tolist() == ["high", "low", "middle"]
    assert made.score(X, NAMES) > 0.7
    probs = made.predict_proba(X)
    np.testing.assert_array_equal(made.predict(X), made.classes_[probs.argmax(axis=1)])
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_allclose(made.predict_log_proba(X), np.log(probs))
    numbers = np.searchsorted(made.classes_, NAMES)
    assert log_loss(NAMES, probs) == pytest.approx(-float(made.predictive(X).log_prob(numbers).mean()), rel=1e-5)
    other = linear().fit(X, 10 * WHICH + 3)
    assert set(other.predict(X)) <= {3, 13, 23}


def test_two_classes_have_one_logit_and_two_columns():
    made = linear().fit(X, WHICH > 1)
    assert made.predict_proba(X).shape == (60, 2)
    assert made.posterior_.components(made.posterior_.key, None).weights["layers"][0]["weight"].shape == (1, 2, 1)
    assert made.predict(X).dtype == bool


def test_units_of_x_do_not_matter():
    one = linear().fit(X, NAMES).predict_proba(X)
    for scale in (0.01, 100.0):
        np.testing.assert_allclose(linear().fit(X * scale, NAMES).predict_proba(X * scale), one, atol=1e-5)


@pytest.mark.parametrize("given", ["balanced", {"low": 3.0, "middle": 1.0, "high": 0.5}])
def test_class_weights_are_the_sample_weights_they_stand_for(given):
    weight = RNG.integers(0, 3, 60)
    keep = weight > 0
    stands_for = compute_sample_weight(given, NAMES[keep]) * weight[keep]
    one = linear(class_weight=given).fit(X, NAMES, weight).predict_proba(X)
    np.testing.assert_array_equal(one, linear().fit(X[keep], NAMES[keep], stands_for).predict_proba(X))
    plain = linear().fit(X, NAMES, weight).predict_proba(X)
    assert np.abs(one - plain).max() > 0.01


def test_a_class_of_weight_zero_is_absent():
    made = linear().fit(X, NAMES, NAMES != "middle")
    assert made.classes_.tolist() == ["high", "low"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: linear().fit(X, np.full(60, "all")), r"at least 2 classes in y; got 1 class, all"),
        (lambda: linear().fit(X, NAMES, NAMES == "low"), r"at least 2 classes in y; got 1 class, low"),
        (lambda: linear().fit(X, X[:, 0]), "Unknown label type"),
        (lambda: linear(likelihood=tb.likelihoods.Gaussian(1.0)).fit(X, NAMES), "Use BayesianRegressor for numbers"),
        (lambda: linear(likelihood=tb.likelihoods.Bernoulli()).fit(X, NAMES), "labels from 0 to 1 for Bernoulli"),
        (lambda: linear(class_weight="even").fit(X, NAMES), "class_weight"),
        (lambda: linear().fit(np.where(X > 1, np.nan, X), NAMES), "Input X contains NaN"),
    ],
)
def test_wrong_input_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.slow
def test_cross_validation_on_breast_cancer_is_right_in_95_of_100():
    data = load_breast_cancer(return_X_y=True)
    assert cross_val_score(tb.BayesianClassifier(random_state=0), *data, cv=5).mean() > 0.95
