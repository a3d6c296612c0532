"""Estimators for scikit-learn: Tunbridge's models and methods behind fit and predict, in the units of the data."""

from tunbridge.estimators.classifier import BayesianClassifier
from tunbridge.estimators.convert import to_bayesian
from tunbridge.estimators.regressor import BayesianRegressor

__all__ = ["BayesianClassifier", "BayesianRegressor", "to_bayesian"]
