"""Priors over weights, one file a family."""

from tunbridge.model.priors.base import AbstractPrior, FanIn, Independent, fan_in
from tunbridge.model.priors.correlated import FullNormal, JointNormal, LowRankNormal
from tunbridge.model.priors.density import LogDensity
from tunbridge.model.priors.filters import FilterGroups
from tunbridge.model.priors.gates import Gates
from tunbridge.model.priors.hierarchical import Hierarchical
from tunbridge.model.priors.improper import LogUniform
from tunbridge.model.priors.marginals import influence, log_marginal
from tunbridge.model.priors.matrix import MatrixNormal, Smooth
from tunbridge.model.priors.mixtures import SpikeAndSlab, TwoNormals
from tunbridge.model.priors.normal import Normal
from tunbridge.model.priors.paths import ByPath
from tunbridge.model.priors.relevance import ARD
from tunbridge.model.priors.shrinkage import GroupHorseshoe, Horseshoe, ScaleMixture
from tunbridge.model.priors.tails import Cauchy, Laplace, Logistic, StudentT

__all__ = [
    "ARD",
    "AbstractPrior",
    "ByPath",
    "Cauchy",
    "FanIn",
    "FilterGroups",
    "FullNormal",
    "Gates",
    "GroupHorseshoe",
    "Hierarchical",
    "Horseshoe",
    "Independent",
    "JointNormal",
    "Laplace",
    "LogDensity",
    "LogUniform",
    "Logistic",
    "LowRankNormal",
    "MatrixNormal",
    "Normal",
    "ScaleMixture",
    "Smooth",
    "SpikeAndSlab",
    "StudentT",
    "TwoNormals",
    "fan_in",
    "influence",
    "log_marginal",
]
