"""Likelihoods: distributions of y given a network's outputs, one file a family."""

from tunbridge.model.likelihoods.bernoulli import Bernoulli
from tunbridge.model.likelihoods.categorical import Categorical
from tunbridge.model.likelihoods.gaussian import Gaussian
from tunbridge.model.likelihoods.heteroscedastic import Heteroscedastic
from tunbridge.model.likelihoods.laplace import Laplace
from tunbridge.model.likelihoods.multitask import MultiTask
from tunbridge.model.likelihoods.negativebinomial import NegativeBinomial
from tunbridge.model.likelihoods.noisycategorical import NoisyCategorical
from tunbridge.model.likelihoods.ordinal import Ordinal
from tunbridge.model.likelihoods.poisson import Poisson
from tunbridge.model.likelihoods.studentt import StudentT

__all__ = [
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "Heteroscedastic",
    "Laplace",
    "MultiTask",
    "NegativeBinomial",
    "NoisyCategorical",
    "Ordinal",
    "Poisson",
    "StudentT",
]
