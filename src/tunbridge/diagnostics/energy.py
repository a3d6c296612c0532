"""What the energies of Hamiltonian samplers tell."""

from typing import Any

import numpy as np

from tunbridge.core.errors import InputError


def bfmi(energy: Any) -> np.ndarray:
    """The fraction of missing information of each chain, from energies (chains, draws) :cite:p:`betancourt2016energy`.

    The mean squared change of energy from draw to draw over its variance. Below 0.3 the momentum drawn at each step
    moves the chain too little between levels of energy: tails are explored slowly.
    """
    from arviz_stats.base import array_stats

    values = np.asarray(energy, np.float64)
    if values.ndim != 2 or values.shape[1] < 2:
        raise InputError("energies of shape (chains, draws)", f"shape {values.shape}", "Pass stats['energy'].")
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(array_stats.bfmi(values, chain_axis=0, draw_axis=1), np.float64)


def energy_balance(change: Any) -> tuple[float, float]:
    r"""The mean of :math:`e^{-\Delta H}` over the changes of energy of proposals, and its standard error.

    It is 1 for static HMC in equilibrium, whatever the step size; elsewhere the integrator or the acceptance is wrong.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> mean, error = energy_balance(0.5 + rng.normal(size=10_000))  # E exp(-N(1/2, 1)) = 1
    >>> bool(abs(mean - 1) < 4 * error)
    True
    """
    terms = np.exp(-np.ravel(np.asarray(change, np.float64)))
    if terms.size < 2:
        raise InputError("at least two changes of energy", f"{terms.size}", "Pass those of all proposals.")
    return float(terms.mean()), float(terms.std(ddof=1) / np.sqrt(terms.size))
