"""METHODS: the name of each method and where it lives, resolved when it is asked for."""

import importlib
from collections.abc import Iterator, Mapping

from tunbridge.core.errors import InputError

_TABLE = {
    "map": "tunbridge.inference.point.map:MAP",
    "ensemble": "tunbridge.inference.point.ensemble:Ensemble",
    "mcdropout": "tunbridge.inference.point.dropout:MCDropout",
    "swag": "tunbridge.inference.point.swag:SWAG",
    "laplace": "tunbridge.inference.laplace.laplace:Laplace",
    "neurallinear": "tunbridge.inference.linear.neurallinear:NeuralLinear",
    "bayesbybackprop": "tunbridge.inference.vi.backprop:BayesByBackprop",
    "meanfield": "tunbridge.inference.vi.methods:MeanField",
    "lowrank": "tunbridge.inference.vi.methods:LowRank",
    "matrixnormalvi": "tunbridge.inference.vi.methods:MatrixNormalVI",
    "fullrank": "tunbridge.inference.vi.methods:FullRank",
    "advi": "tunbridge.inference.vi.advi:ADVI",
    "ivon": "tunbridge.inference.vi.ivon:IVON",
    "vbll": "tunbridge.inference.linear.vbll:VBLL",
    "randomwalk": "tunbridge.inference.mcmc.metropolis:RandomWalk",
    "mala": "tunbridge.inference.mcmc.langevin:MALA",
    "ula": "tunbridge.inference.mcmc.langevin:ULA",
    "hmc": "tunbridge.inference.mcmc.hamiltonian:HMC",
    "nuts": "tunbridge.inference.mcmc.hamiltonian:NUTS",
    "mclmc": "tunbridge.inference.mcmc.microcanonical:MCLMC",
    "adjustedmclmc": "tunbridge.inference.mcmc.microcanonical:AdjustedMCLMC",
    "ellipticalslice": "tunbridge.inference.mcmc.elliptical:EllipticalSlice",
    "sgld": "tunbridge.inference.sgmcmc.methods:SGLD",
    "sghmc": "tunbridge.inference.sgmcmc.methods:SGHMC",
    "sgnht": "tunbridge.inference.sgmcmc.methods:SGNHT",
    "temperedsmc": "tunbridge.inference.mcmc.smc:TemperedSMC",
}


COMPARED = ("map", "ensemble", "mcdropout", "swag", "laplace")
"""What a comparison runs unless it is told: methods that answer whenever they are stopped.

Samplers are named. So are variational methods: stopped early, they have hardly moved from a wide start.
"""


class UnknownMethodError(InputError, KeyError):
    """A name that no method has."""


class Registry(Mapping[str, type]):
    """Names of methods to their classes, imported on first use."""

    def __getitem__(self, name: str) -> type:
        module, _, cls = self.place(name).partition(":")
        return getattr(importlib.import_module(module), cls)

    def place(self, name: str) -> str:
        """Where a method lives, as "module:Class"; nothing is imported."""
        if name not in _TABLE:
            raise UnknownMethodError(f"a method of {', '.join(_TABLE)}", repr(name), "Choose one of these names.")
        return _TABLE[name]

    def __contains__(self, name: object) -> bool:
        return name in _TABLE

    def __iter__(self) -> Iterator[str]:
        return iter(_TABLE)

    def __len__(self) -> int:
        return len(_TABLE)


METHODS = Registry()
