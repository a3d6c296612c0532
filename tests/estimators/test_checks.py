"""scikit-learn's own checks, none exempted."""

import datetime

import pytest
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

import tunbridge as tb
from toys import LeastSquares

LINEAR = {"method": LeastSquares(), "network": tb.networks.MLP(()), "prior": tb.priors.Normal(1.0)}
DOORS = [tb.BayesianRegressor(**LINEAR, likelihood=tb.likelihoods.Gaussian(0.5)), tb.BayesianClassifier(**LINEAR)]
CHECKS = [pair for door in DOORS for pair in estimator_checks_generator(door)]


@pytest.mark.parametrize(
    ("estimator", "check"), CHECKS, ids=[f"{type(door).__name__}-{check.func.__name__}" for door, check in CHECKS]
)
def test_doors_keep_to_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


TURNS = 48
"""Weeks after which every check has run on the default estimators in the fast tests; the slow ones run all of them."""
DEFAULTS = [
    pair for door in (tb.BayesianRegressor(), tb.BayesianClassifier()) for pair in estimator_checks_generator(door)
]
WEEKLY = DEFAULTS[datetime.date.today().isocalendar().week % TURNS :: TURNS]


@pytest.mark.parametrize(
    ("estimator", "check"), WEEKLY, ids=[f"{type(door).__name__}-{check.func.__name__}" for door, check in WEEKLY]
)
def test_defaults_keep_to_some_of_the_contract_each_week(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("make", [tb.BayesianRegressor, tb.BayesianClassifier])
def test_estimators_as_they_come_keep_to_the_contract_of_scikit_learn(make):
    outcomes = check_estimator(make(), on_skip=None)
    assert {o["check_name"] for o in outcomes if o["status"] != "passed"} <= {"check_array_api_input"}
