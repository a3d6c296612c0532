"""Bayesian deep learning you can check.

A Model is a Network, a Prior and a Likelihood. A Method turns a model and data into a Posterior. A posterior pushed
through the network is a Predictive.
"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

from tunbridge.runtime import programs

if TYPE_CHECKING:
    from tunbridge import applications, bench, datasets, diagnostics, metrics, plots
    from tunbridge.bench.compare import compare
    from tunbridge.core.citations import cite
    from tunbridge.core.data import Data
    from tunbridge.core.errors import (
        BusyError,
        CheckpointError,
        ConvergenceWarning,
        InputError,
        LoadError,
        NumericalError,
        TunbridgeError,
    )
    from tunbridge.core.types import Params, Predictive
    from tunbridge.estimators import BayesianClassifier, BayesianRegressor, to_bayesian
    from tunbridge.inference.chains import Chains
    from tunbridge.inference.laplace import curvatures, structures, tuning
    from tunbridge.inference.laplace.gaussian import Linearised, StructuredGaussian
    from tunbridge.inference.laplace.laplace import Laplace
    from tunbridge.inference.linear import conjugate
    from tunbridge.inference.linear.neurallinear import NeuralLinear
    from tunbridge.inference.linear.posterior import LinearLayer
    from tunbridge.inference.linear.variational import VariationalLayer
    from tunbridge.inference.linear.vbll import VBLL
    from tunbridge.inference.mcmc import integrators, mass
    from tunbridge.inference.mcmc.elliptical import EllipticalSlice
    from tunbridge.inference.mcmc.hamiltonian import HMC, NUTS
    from tunbridge.inference.mcmc.langevin import MALA, ULA
    from tunbridge.inference.mcmc.metropolis import RandomWalk
    from tunbridge.inference.mcmc.microcanonical import MCLMC, AdjustedMCLMC
    from tunbridge.inference.mcmc.smc import TemperedSMC
    from tunbridge.inference.point.dropout import (
        Dropout,
        MCDropout,
        tau_from_weight_decay,
        weight_decay_from_tau,
    )
    from tunbridge.inference.point.ensemble import Ensemble
    from tunbridge.inference.point.map import MAP
    from tunbridge.inference.point.momentum import momentum_from_physics, physics_from_momentum
    from tunbridge.inference.point.swag import SWAG
    from tunbridge.inference.posteriors import Draws, LowRankGaussian, Mixture, Point
    from tunbridge.inference.pruned import Pruned
    from tunbridge.inference.recorded import Recorded
    from tunbridge.inference.registry import METHODS
    from tunbridge.inference.sgmcmc import corrections, moves, preconditioners, splittings, subsampling
    from tunbridge.inference.sgmcmc.methods import SGHMC, SGLD, SGNHT
    from tunbridge.inference.standardised import Standardised
    from tunbridge.inference.store import load
    from tunbridge.inference.vi import divergences, families, gradients, klweights
    from tunbridge.inference.vi.advi import ADVI
    from tunbridge.inference.vi.backprop import BayesByBackprop
    from tunbridge.inference.vi.ivon import IVON
    from tunbridge.inference.vi.methods import FullRank, LowRank, MatrixNormalVI, MeanField
    from tunbridge.inference.vi.posterior import VariationalGaussian
    from tunbridge.model import likelihoods, networks, priors, subsets
    from tunbridge.model.model import Model, Target
    from tunbridge.predict import links
    from tunbridge.runtime import schedules
    from tunbridge.runtime.loop import Run, Train

logging.getLogger("tunbridge").addHandler(logging.NullHandler())
programs.silence_loader()

_MODULES = {
    "applications": "tunbridge.applications",
    "bench": "tunbridge.bench",
    "conjugate": "tunbridge.inference.linear.conjugate",
    "corrections": "tunbridge.inference.sgmcmc.corrections",
    "curvatures": "tunbridge.inference.laplace.curvatures",
    "datasets": "tunbridge.datasets",
    "diagnostics": "tunbridge.diagnostics",
    "divergences": "tunbridge.inference.vi.divergences",
    "families": "tunbridge.inference.vi.families",
    "gradients": "tunbridge.inference.vi.gradients",
    "integrators": "tunbridge.inference.mcmc.integrators",
    "klweights": "tunbridge.inference.vi.klweights",
    "likelihoods": "tunbridge.model.likelihoods",
    "links": "tunbridge.predict.links",
    "mass": "tunbridge.inference.mcmc.mass",
    "metrics": "tunbridge.metrics",
    "moves": "tunbridge.inference.sgmcmc.moves",
    "networks": "tunbridge.model.networks",
    "plots": "tunbridge.plots",
    "preconditioners": "tunbridge.inference.sgmcmc.preconditioners",
    "priors": "tunbridge.model.priors",
    "schedules": "tunbridge.runtime.schedules",
    "splittings": "tunbridge.inference.sgmcmc.splittings",
    "structures": "tunbridge.inference.laplace.structures",
    "subsampling": "tunbridge.inference.sgmcmc.subsampling",
    "subsets": "tunbridge.model.subsets",
    "tuning": "tunbridge.inference.laplace.tuning",
}
_NAMES = {
    "ADVI": "tunbridge.inference.vi.advi",
    "HMC": "tunbridge.inference.mcmc.hamiltonian",
    "MALA": "tunbridge.inference.mcmc.langevin",
    "MCLMC": "tunbridge.inference.mcmc.microcanonical",
    "METHODS": "tunbridge.inference.registry",
    "NUTS": "tunbridge.inference.mcmc.hamiltonian",
    "AdjustedMCLMC": "tunbridge.inference.mcmc.microcanonical",
    "MAP": "tunbridge.inference.point.map",
    "SGHMC": "tunbridge.inference.sgmcmc.methods",
    "SGLD": "tunbridge.inference.sgmcmc.methods",
    "SGNHT": "tunbridge.inference.sgmcmc.methods",
    "SWAG": "tunbridge.inference.point.swag",
    "ULA": "tunbridge.inference.mcmc.langevin",
    "BayesByBackprop": "tunbridge.inference.vi.backprop",
    "BayesianClassifier": "tunbridge.estimators",
    "BayesianRegressor": "tunbridge.estimators",
    "BusyError": "tunbridge.core.errors",
    "Chains": "tunbridge.inference.chains",
    "CheckpointError": "tunbridge.core.errors",
    "ConvergenceWarning": "tunbridge.core.errors",
    "Data": "tunbridge.core.data",
    "Draws": "tunbridge.inference.posteriors",
    "Dropout": "tunbridge.inference.point.dropout",
    "EllipticalSlice": "tunbridge.inference.mcmc.elliptical",
    "Ensemble": "tunbridge.inference.point.ensemble",
    "FullRank": "tunbridge.inference.vi.methods",
    "IVON": "tunbridge.inference.vi.ivon",
    "InputError": "tunbridge.core.errors",
    "Laplace": "tunbridge.inference.laplace.laplace",
    "LinearLayer": "tunbridge.inference.linear.posterior",
    "Linearised": "tunbridge.inference.laplace.gaussian",
    "LowRank": "tunbridge.inference.vi.methods",
    "LowRankGaussian": "tunbridge.inference.posteriors",
    "MCDropout": "tunbridge.inference.point.dropout",
    "LoadError": "tunbridge.core.errors",
    "MatrixNormalVI": "tunbridge.inference.vi.methods",
    "MeanField": "tunbridge.inference.vi.methods",
    "Mixture": "tunbridge.inference.posteriors",
    "Model": "tunbridge.model.model",
    "NeuralLinear": "tunbridge.inference.linear.neurallinear",
    "NumericalError": "tunbridge.core.errors",
    "Params": "tunbridge.core.types",
    "Point": "tunbridge.inference.posteriors",
    "Predictive": "tunbridge.core.types",
    "Pruned": "tunbridge.inference.pruned",
    "RandomWalk": "tunbridge.inference.mcmc.metropolis",
    "Recorded": "tunbridge.inference.recorded",
    "Run": "tunbridge.runtime.loop",
    "Standardised": "tunbridge.inference.standardised",
    "StructuredGaussian": "tunbridge.inference.laplace.gaussian",
    "Target": "tunbridge.model.model",
    "TemperedSMC": "tunbridge.inference.mcmc.smc",
    "Train": "tunbridge.runtime.loop",
    "TunbridgeError": "tunbridge.core.errors",
    "VariationalGaussian": "tunbridge.inference.vi.posterior",
    "VBLL": "tunbridge.inference.linear.vbll",
    "VariationalLayer": "tunbridge.inference.linear.variational",
    "cite": "tunbridge.core.citations",
    "compare": "tunbridge.bench.compare",
    "momentum_from_physics": "tunbridge.inference.point.momentum",
    "physics_from_momentum": "tunbridge.inference.point.momentum",
    "tau_from_weight_decay": "tunbridge.inference.point.dropout",
    "to_bayesian": "tunbridge.estimators.convert",
    "weight_decay_from_tau": "tunbridge.inference.point.dropout",
    "load": "tunbridge.inference.store",
}

__all__ = [
    "ADVI",
    "HMC",
    "IVON",
    "MALA",
    "MAP",
    "MCLMC",
    "METHODS",
    "NUTS",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SWAG",
    "ULA",
    "VBLL",
    "AdjustedMCLMC",
    "BayesByBackprop",
    "BayesianClassifier",
    "BayesianRegressor",
    "BusyError",
    "Chains",
    "CheckpointError",
    "ConvergenceWarning",
    "Data",
    "Draws",
    "Dropout",
    "EllipticalSlice",
    "Ensemble",
    "FullRank",
    "InputError",
    "Laplace",
    "LinearLayer",
    "Linearised",
    "LoadError",
    "LowRank",
    "LowRankGaussian",
    "MCDropout",
    "MatrixNormalVI",
    "MeanField",
    "Mixture",
    "Model",
    "NeuralLinear",
    "NumericalError",
    "Params",
    "Point",
    "Predictive",
    "Pruned",
    "RandomWalk",
    "Recorded",
    "Run",
    "Standardised",
    "StructuredGaussian",
    "Target",
    "TemperedSMC",
    "Train",
    "TunbridgeError",
    "VariationalGaussian",
    "VariationalLayer",
    "applications",
    "bench",
    "cite",
    "compare",
    "conjugate",
    "corrections",
    "curvatures",
    "datasets",
    "diagnostics",
    "divergences",
    "families",
    "gradients",
    "integrators",
    "klweights",
    "likelihoods",
    "links",
    "load",
    "mass",
    "metrics",
    "momentum_from_physics",
    "moves",
    "networks",
    "physics_from_momentum",
    "plots",
    "preconditioners",
    "priors",
    "schedules",
    "splittings",
    "structures",
    "subsampling",
    "subsets",
    "tau_from_weight_decay",
    "to_bayesian",
    "tuning",
    "weight_decay_from_tau",
]


def __getattr__(name: str) -> Any:
    found: Any
    if name == "__version__":
        from importlib.metadata import version  # 0.1 s that help texts do not need

        found = version("tunbridge")
    elif name in _MODULES:
        found = importlib.import_module(_MODULES[name])
    elif name in _NAMES:
        found = getattr(importlib.import_module(_NAMES[name]), name)
    else:
        raise AttributeError(f"module 'tunbridge' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
