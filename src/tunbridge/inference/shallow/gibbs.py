"""Gibbs sampling of shallow networks, with the output layer integrated out."""

from typing import ClassVar

import equinox as eqx

from tunbridge.core.data import Data
from tunbridge.core.types import Key
from tunbridge.inference.promises import Promises
from tunbridge.inference.sampler import Info
from tunbridge.inference.shallow.sampler import SweepSampler
from tunbridge.inference.shallow.sweep import ShallowState
from tunbridge.model.model import Target


class GibbsMetropolis(SweepSampler):
    r"""Gibbs and Metropolis sampling of `networks.Shallow` under `priors.Exchangeable` :cite:p:`mueller1998issues`.

    The output and linear weights are integrated out in closed form, so that each hidden unit moves on the marginal
    likelihood, which a rank-one update gives; then the output weights are drawn, and every unknown number of the prior
    and the noise from its conditional distribution, or by slice sampling :cite:p:`neal2003slice` where its prior is not
    conjugate. No gradient is taken; warm-up tunes the size of steps. Computation is in double precision.

    Use it for one hidden layer of up to some tens of units and normal noise, where it decorrelates the predictions
    faster per second than gradient-based samplers.

    Parameters
    ----------
    integrated
        Whether hidden units move with the output weights integrated out; if not, given them, for comparison.
    acceptance
        Acceptance probability of hidden units that warm-up aims at.
    run
        Length of the run.
    """

    promises: ClassVar[Promises] = {  # networks of one form alone
        "linear": ("refused",),
        "linear_unknown": ("refused",),
        "logistic": ("refused",),
        "tanh_unit": ("refused",),
    }

    integrated: bool = eqx.field(static=True, default=True)

    def step(self, key: Key, target: Target, state: ShallowState, batch: Data) -> tuple[ShallowState, Info]:
        """One sweep over all unknowns."""
        return state.next(key, target, batch, self.acceptance, None, self.integrated)
