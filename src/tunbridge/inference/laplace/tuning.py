"""How unknown noise and prior scales are tuned: by the evidence, after or while training, or on held-out rows."""

from typing import Any

import equinox as eqx
import numpy as np

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError


class Tuning(Module):
    """A way to tune unknown noise and prior scales."""


class _Rounds(Tuning):
    """Tuning in rounds, of some optimiser steps each."""

    rounds: eqx.AbstractVar[int]
    steps: eqx.AbstractVar[int]

    def __check_init__(self):
        if self.rounds < 1 or self.steps < 1:
            raise InputError("at least 1 round and 1 step", f"{self.rounds}, {self.steps}", "Use the defaults.")


class Evidence(_Rounds):
    """Maximise the evidence around the mode, find the mode again, and repeat while the evidence rises.

    Parameters
    ----------
    rounds
        Maximum number of rounds.
    steps
        Optimiser steps on the evidence per round.
    """

    rounds: int = 6
    steps: int = 100


class Online(_Rounds):
    """Maximise the evidence while the network is trained, without held-out rows :cite:p:`immer2021scalable`.

    Parameters
    ----------
    rounds
        How often the evidence is maximised: training is split into this many parts.
    steps
        Optimiser steps on the evidence per round.
    """

    rounds: int = 20
    steps: int = 50


class Validation(Tuning):
    """Multiply all unknown prior scales by the factor with the best held-out log density; noise is left unchanged.

    Parameters
    ----------
    share
        Share of the rows that is held out.
    factors
        Number of factors that are tried, from 1/30 to 30.
    """

    share: float = eqx.field(default=0.2, converter=float)
    factors: int = 15

    def __check_init__(self):
        if not 0.0 < self.share < 1.0:
            raise InputError("a share of the rows between 0 and 1", f"{self.share}", "Try 0.2.")
        if self.factors < 2:
            raise InputError("at least 2 factors", f"{self.factors}", "Try 15.")

    @property
    def shifts(self) -> list[float]:
        """The logarithms of the factors."""
        return np.linspace(-np.log(30.0), np.log(30.0), self.factors).tolist()


_NAMED: dict[Any, Tuning | None] = {
    "evidence": Evidence(),
    "online": Online(),
    "validation": Validation(),
    None: None,
}


def as_tuning(given: Any) -> Tuning | None:
    """Return the tuning that `tune=` names; a `Tuning` is returned unchanged."""
    if isinstance(given, Tuning):
        return given
    if not isinstance(given, str | None) or given not in _NAMED:
        raise InputError(
            'tune= as "evidence", "online", "validation", None or an object of tunbridge.tuning',
            repr(given)[:60],
            "Choose one of these.",
        )
    return _NAMED[given]
