import arviz_base
import arviz_stats
import numpy as np
import pytest

import tunbridge as tb
from tunbridge import diagnostics


def test_the_missing_information_is_that_of_arviz():
    energy = np.cumsum(np.random.default_rng(0).normal(size=(3, 200)), axis=1)
    tree = arviz_base.from_dict({"sample_stats": {"energy": energy}})
    np.testing.assert_allclose(diagnostics.bfmi(energy), arviz_stats.bfmi(tree)["energy"].values, rtol=1e-6)
    assert (diagnostics.bfmi(energy) < 0.3).all()  # a random walk of energies
    with pytest.raises(tb.InputError, match="energies of shape"):
        diagnostics.bfmi(energy[0])


def test_the_balance_of_leapfrog_on_a_normal_is_one():
    """Static HMC in equilibrium, one leapfrog step of size 1.5 on N(0, 1); false alarm below 1e-4."""
    rng = np.random.default_rng(0)
    q, p = rng.normal(size=(2, 50_000))
    half = p - 0.75 * q
    moved = q + 1.5 * half
    change = 0.5 * (moved**2 + (half - 0.75 * moved) ** 2 - q**2 - p**2)
    mean, error = diagnostics.energy_balance(change)
    assert abs(mean - 1) < 4 * error
    biased, error = diagnostics.energy_balance(change + 0.1)
    assert abs(biased - 1) > 4 * error
    with pytest.raises(tb.InputError, match="at least two"):
        diagnostics.energy_balance([0.0])
