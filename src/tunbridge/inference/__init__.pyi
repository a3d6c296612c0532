"""The methods, in the order in which they are listed."""

from tunbridge.inference.point.map import MAP as MAP
from tunbridge.inference.point.ensemble import Ensemble as Ensemble
from tunbridge.inference.point.dropout import MCDropout as MCDropout
from tunbridge.inference.point.swag import SWAG as SWAG
from tunbridge.inference.laplace.laplace import Laplace as Laplace
from tunbridge.inference.linear.neurallinear import NeuralLinear as NeuralLinear
from tunbridge.inference.vi.backprop import BayesByBackprop as BayesByBackprop
from tunbridge.inference.vi.methods import MeanField as MeanField
from tunbridge.inference.vi.methods import LowRank as LowRank
from tunbridge.inference.vi.methods import MatrixNormalVI as MatrixNormalVI
from tunbridge.inference.vi.methods import FullRank as FullRank
from tunbridge.inference.vi.advi import ADVI as ADVI
from tunbridge.inference.vi.ivon import IVON as IVON
from tunbridge.inference.linear.vbll import VBLL as VBLL
from tunbridge.inference.mcmc.metropolis import RandomWalk as RandomWalk
from tunbridge.inference.mcmc.langevin import MALA as MALA
from tunbridge.inference.mcmc.langevin import ULA as ULA
from tunbridge.inference.mcmc.hamiltonian import HMC as HMC
from tunbridge.inference.mcmc.hamiltonian import NUTS as NUTS
from tunbridge.inference.mcmc.microcanonical import MCLMC as MCLMC
from tunbridge.inference.mcmc.microcanonical import AdjustedMCLMC as AdjustedMCLMC
from tunbridge.inference.mcmc.elliptical import EllipticalSlice as EllipticalSlice
from tunbridge.inference.sgmcmc.methods import SGLD as SGLD
from tunbridge.inference.sgmcmc.methods import SGHMC as SGHMC
from tunbridge.inference.sgmcmc.methods import SGNHT as SGNHT
from tunbridge.inference.mcmc.smc import TemperedSMC as TemperedSMC
