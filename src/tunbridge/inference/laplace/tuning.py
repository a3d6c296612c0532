"""How unknown noise and prior scales are found: by the evidence, while training or after it, or by rows held out."""

from typing import Any

import equinox as eqx
import numpy as np

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError


class Tuning(Module):
    """A way to find unknowns that are not weights."""


class _Rounds(Tuning):
    """Rounds of tuning, of some steps each."""

    rounds: eqx.AbstractVar[int]
    steps: eqx.AbstractVar[int]

    def __check_init__(self):
        if self.rounds < 1 or self.steps < 1:
            raise InputError("at least 1 round and 1 step", f"{self.rounds}, {self.steps}", "Use the defaults.")


class Evidence(_Rounds):
    """Maximise the evidence around the mode, find the mode again, and so on while the evidence rises.

    Parameters
    ----------
    rounds
        At most how often.
    steps
        Of the optimiser of the evidence, a round.
    """

    rounds: int = 6
    steps: int = 100


class Online(_Rounds):
    """The same while the network is trained, from the start: no row is held out :cite:p:`immer2021scalable`.

    Parameters
    ----------
    rounds
        How often the evidence is maximised: training is cut into so many parts.
    steps
        Of the optimiser of the evidence, a round.
    """

    rounds: int = 20
    steps: int = 50


class Validation(Tuning):
    """One factor of all unknown prior scales, by the log density of rows held out; noise as the point estimate has it.

    Parameters
    ----------
    share
        Of the rows that are held out.
    factors
        How many factors are tried, from 1/30 to 30.
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
    """A tuning, from itself or from its name."""
    if isinstance(given, Tuning):
        return given
    if not isinstance(given, str | None) or given not in _NAMED:
        raise InputError(
            'tune= as "evidence", "online", "validation", None or an object of tunbridge.tuning',
            repr(given)[:60],
            "Choose one of these.",
        )
    return _NAMED[given]
