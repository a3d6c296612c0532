"""Diagnostics from the energies of Hamiltonian samplers."""

from typing import Any

import numpy as np

from tunbridge.core.declared import as_floats
from tunbridge.core.errors import InputError


def bfmi(energy: Any) -> np.ndarray:
    """E-BFMI of each chain from its energies (chains, draws) :cite:p:`betancourt2016energy`.

    The Bayesian fraction of missing information is the mean squared change of energy from draw to draw, divided by the
    variance of the energy. Below 0.3, resampling the momentum moves the chain too little between energy levels, and
    tails are explored slowly. It is NaN for a chain of constant energy.
    """
    from arviz_stats.base import array_stats

    values = as_floats(energy, "energy")
    if values.ndim != 2 or values.shape[1] < 2 or not values.size:
        raise InputError("energies of shape (chains, draws)", f"shape {values.shape}", "Pass stats['energy'].")
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(array_stats.bfmi(values, chain_axis=0, draw_axis=1), np.float64)


def energy_balance(change: Any) -> tuple[float, float]:
    r"""Mean and standard error of :math:`e^{-\Delta H}` over the energy changes of proposals.

    The expectation is 1 for static HMC in equilibrium, whatever the step size. Any other value means that the
    integrator or the acceptance step is wrong.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> mean, error = energy_balance(0.5 + rng.normal(size=10_000))  # E exp(-N(1/2, 1)) = 1
    >>> bool(abs(mean - 1) < 4 * error)
    True
    """
    terms = np.exp(-np.ravel(as_floats(change, "change")))
    if terms.size < 2:
        raise InputError("at least two energy changes", f"{terms.size}", "Pass those of all proposals.")
    return float(terms.mean()), float(terms.std(ddof=1) / np.sqrt(terms.size))
