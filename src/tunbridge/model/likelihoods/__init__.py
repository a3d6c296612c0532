"""Likelihoods: distributions of y given a network's outputs, one file a family."""

from tunbridge.model.likelihoods.bernoulli import Bernoulli
from tunbridge.model.likelihoods.categorical import Categorical
from tunbridge.model.likelihoods.gaussian import Gaussian
from tunbridge.model.likelihoods.heteroscedastic import Heteroscedastic

__all__ = ["Bernoulli", "Categorical", "Gaussian", "Heteroscedastic"]
