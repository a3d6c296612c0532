"""What warm-up finds by itself, and what it does when that is not enough."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import equal, table
from tunbridge.inference.sgmcmc import tuning
from tunbridge.inference.standardised import fit_standardised

RUN = tb.Run(chains=2, warmup=400, draws=50, thin=1)
pytestmark = pytest.mark.filterwarnings("ignore::tunbridge.ConvergenceWarning")


@pytest.fixture
def change(monkeypatch):
    """Set a name of the room to another value, and forget what was compiled with the old one."""

    def change(name, value):
        monkeypatch.setattr(tuning, name, value)
        jax.clear_caches()

    yield change
    jax.clear_caches()


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(tb.SGLD(run=RUN), id="sgld", marks=pytest.mark.slow),
        pytest.param(tb.SGHMC(run=RUN), id="sghmc"),
        pytest.param(tb.SGHMC(run=RUN, noise_estimate=None), id="noise", marks=pytest.mark.slow),
        pytest.param(tb.SGNHT(run=RUN), id="sgnht", marks=pytest.mark.slow),
    ],
)
def test_a_chain_lost_in_warm_up_goes_back_and_takes_smaller_steps(method, change):
    """Above 4 over the curvature each step leads further away from a normal posterior."""
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3))
    fit, data = method.fit, table(24)
    change("STIFFNESS", 50.0)
    posterior = fit(model, data, key=jax.random.key(0))
    assert "A chain was lost" in " ".join(posterior.notes)
    assert np.isfinite(posterior.predict(data.x).mean).all()
    assert all(np.isfinite(found).all() for name, found in posterior.stats.items() if name.startswith("temperature"))
    change("_LEAST_CAUTION", 1.0)
    with pytest.raises(tb.NumericalError, match="diverged"):
        fit(model, data, key=jax.random.key(0))


def test_noise_begins_at_its_median_whatever_the_key():
    law = dist.Gamma(0.5, 1.0)
    model, data = tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(law)).bind(table(24))
    target = tb.Target(model, float(data.num))
    starts = [tb.SGHMC().start(jax.random.key(k), target, data) for k in range(2)]
    assert equal(starts[0].noise, starts[1].noise)
    assert not equal(starts[0].weights, starts[1].weights)
    assert float(law.cdf(model.likelihood.values(starts[0].noise))) == pytest.approx(0.5, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.003, 0.03, 0.3])
def test_a_short_warm_up_arrives_however_small_the_noise(noise):
    x = np.linspace(-2.0, 2.0, 60)[:, None]
    truth = np.sin(2.0 * x)
    y = truth + noise * np.random.default_rng(0).normal(size=truth.shape)
    prior = tb.priors.Normal(tb.priors.fan_in(dist.LogNormal(0.0, 0.5)))
    model = tb.Model(tb.networks.MLP((20,)), prior, tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)))
    method = tb.SGHMC(run=tb.Run(chains=2, warmup=900, draws=50, thin=4))
    posterior = fit_standardised(method, model, x, y, key=jax.random.key(1))
    error = posterior.predict(x).mean - truth
    assert np.sqrt(np.mean(error**2)) < 0.15
