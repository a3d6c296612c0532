"""Doors for scikit-learn: the same models and methods behind fit and predict, in the units of the table."""

from tunbridge.estimators.classifier import BayesianClassifier
from tunbridge.estimators.convert import to_bayesian
from tunbridge.estimators.regressor import BayesianRegressor

__all__ = ["BayesianClassifier", "BayesianRegressor", "to_bayesian"]
