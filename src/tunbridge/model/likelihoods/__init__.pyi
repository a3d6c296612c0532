"""Likelihoods: distributions of y given a network's outputs, one file a family."""

from tunbridge.model.likelihoods.bernoulli import Bernoulli as Bernoulli
from tunbridge.model.likelihoods.categorical import Categorical as Categorical
from tunbridge.model.likelihoods.gaussian import Gaussian as Gaussian
from tunbridge.model.likelihoods.heteroscedastic import Heteroscedastic as Heteroscedastic
from tunbridge.model.likelihoods.laplace import Laplace as Laplace
from tunbridge.model.likelihoods.multitask import MultiTask as MultiTask
from tunbridge.model.likelihoods.negativebinomial import NegativeBinomial as NegativeBinomial
from tunbridge.model.likelihoods.noisycategorical import NoisyCategorical as NoisyCategorical
from tunbridge.model.likelihoods.ordinal import Ordinal as Ordinal
from tunbridge.model.likelihoods.poisson import Poisson as Poisson
from tunbridge.model.likelihoods.studentt import StudentT as StudentT
