"""Prior scales by the log density of rows held out."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Params
from tunbridge.inference.laplace.fitting import Fitted
from tunbridge.inference.laplace.gaussian import Linearised

_REACH = float(np.log(30.0))


def best_shift(
    around: Callable[[Params], tuple[Fitted, Linearised]], at: Callable[[float], Params], held: Data, factors: int
) -> float:
    """The shift of all log scales, of a grid, whose posterior gives held-out rows the largest log density.

    Parameters
    ----------
    around
        The posterior around parameters.
    at
        The parameters, their weights as they are, with log scales shifted.
    held
        The rows held out.
    factors
        How many shifts are tried.
    """
    shifts = np.linspace(-_REACH, _REACH, factors)
    first, moved = (around(at(shift))[0].evidence for shift in (0.0, float(shifts[-1])))
    ratio = moved.local.variances(moved.local.params.scales) / first.local.variances(first.local.params.scales)
    if not np.allclose(np.log(np.asarray(ratio)), 2.0 * shifts[-1], atol=1e-3):
        raise InputError(
            "a prior whose unknowns are scales of the weights, for tuning by validation",
            "one with other unknowns",
            'Use tune="evidence".',
        )
    scores = [float(jnp.mean(around(at(float(s)))[1].predict(held.x).log_prob(held.y))) for s in shifts]
    return float(shifts[int(np.nanargmax(scores))])
