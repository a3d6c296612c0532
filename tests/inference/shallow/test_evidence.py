"""Simulation-based calibration of both methods, and model probabilities beside those of another sampler's evidence."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from inference.shallow.test_gibbs import CONJUGATE, ROOT, table
from tunbridge import likelihoods, networks, priors

X = np.linspace(-1.5, 1.5, 8)[:, None]
METHODS = {
    "gibbs": (tb.GibbsMetropolis(run=tb.Run(1, 500, 100, 15)), CONJUGATE),
    "jumps": (
        tb.ReversibleJump(run=tb.Run(1, 500, 100, 15)),
        priors.Exchangeable(**CONJUGATE.numbers, alpha=dist.Beta(2.0, 2.0)),
    ),
}


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize("name", METHODS)
def test_ranks_are_uniform(name, key):
    """`Calibration.passes` has false alarms of 1 %."""
    method, prior = METHODS[name]
    model = tb.Model(networks.Shallow(3, outputs=1), prior, likelihoods.Gaussian(ROOT))
    found = tb.bench.sbc(method, model, X, key=key, simulations=100, progress=False)
    assert found.passes, str(found)


@pytest.mark.slow
@pytest.mark.optimised
def test_model_probabilities_are_those_of_tempered_smc(key):
    """For 1 to 3 units: log ratios of probabilities within 0.3 of those of the evidence, four errors of the latter."""
    x, y = table(20)
    model = tb.Model(networks.Shallow(3), priors.Exchangeable(alpha=0.5), likelihoods.Gaussian(0.3))
    posterior = tb.ReversibleJump(run=tb.Run(4, 2000, 5000, 4)).fit(model, (x, y), key=key, progress=False)
    found = {row["units"]: row for row in tb.bench.num_units(posterior).rows}
    evidence = []
    for units in (1, 2, 3):
        fixed = tb.Model(networks.Shallow(units), priors.Exchangeable(), likelihoods.Gaussian(0.3))
        smc = tb.TemperedSMC(particles=4000).fit(fixed, (x, y), key=jax.random.key(units), progress=False)
        evidence.append(float(smc.log_evidence))
    wanted = np.diff(np.array(evidence) + np.log([found[units]["prior"] for units in (1, 2, 3)]))
    np.testing.assert_allclose(np.diff(np.log([found[units]["posterior"] for units in (1, 2, 3)])), wanted, atol=0.3)
