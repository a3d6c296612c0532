"""Reversible jumps of shallow networks: the number of hidden units is an unknown."""

from typing import ClassVar

from tunbridge.core.data import Data
from tunbridge.core.declared import Count
from tunbridge.core.types import Key
from tunbridge.inference.promises import Promises
from tunbridge.inference.sampler import Info
from tunbridge.inference.shallow.sampler import SweepSampler
from tunbridge.inference.shallow.sweep import ShallowState
from tunbridge.model import defaults
from tunbridge.model.model import Target


class ReversibleJump(SweepSampler):
    r"""Reversible jumps between numbers of hidden units :cite:p:`green1995reversible,mueller1998issues`.

    `GibbsMetropolis` for `priors.Exchangeable` with `alpha`, where the number of units is unknown: after the hidden
    units, units are born, die, split and merge with the output weights integrated out. Draws of all numbers of units
    have one shape; the number is the last entry of their `scales`.

    Parameters
    ----------
    jumps
        Number of jumps tried per step.
    acceptance
        Acceptance probability of moves within a number of units that warm-up aims at.
    run
        Length of the run.
    """

    discrete: ClassVar[bool] = True
    parts: ClassVar[defaults.Parts] = defaults.COUNTED

    promises: ClassVar[Promises] = {  # networks of one form alone
        "linear": ("refused",),
        "linear_unknown": ("refused",),
        "logistic": ("refused",),
        "tanh_unit": ("refused",),
    }

    jumps: Count = 5

    def step(self, key: Key, target: Target, state: ShallowState, batch: Data) -> tuple[ShallowState, Info]:
        """One sweep over all unknowns, with jumps."""
        return state.next(key, target, batch, self.acceptance, self.jumps, True)
