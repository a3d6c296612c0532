"""What warm-up finds by itself, and what it does when that is not enough."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import equal, table
from tunbridge.inference.sgmcmc import tuning
from tunbridge.inference.standardised import fit_standardised
from tunbridge.model import defaults
from tunbridge.runtime.loop import Options

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


@pytest.mark.parametrize("method", [tb.SGHMC(), tb.SGNHT()], ids=["sghmc", "sgnht"])
def test_the_descent_is_no_colder_than_the_posterior(method):
    """A cold one fits the noise of a small table, and takes the noise's scale down with it.

    The mean kinetic temperature of six unknowns over 3,000 steps has a standard error of 0.02; four are allowed.
    """
    model, data = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3)).bind(table(24))
    target, key = tb.Target(model, float(data.num)), jax.random.key(0)
    method, _ = method.settle(model, data, key, 1, Options())
    first = method.init(key, target, method.start(key, target, data), data, jnp.asarray(100_000))

    def step(state, key):
        state, _ = method.step(key, target, state, data)
        return state, state.heat

    last, heat = jax.lax.scan(step, first, jax.random.split(key, 4000))
    assert bool(last.tuning.descends)
    assert float(jnp.mean(heat[1000:])) == pytest.approx(1.0, abs=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("method", [tb.SGHMC(), tb.SGNHT()], ids=["sghmc", "sgnht"])
def test_noise_of_a_small_table_is_not_fitted(method):
    """On diabetes with default fields the NLL on test rows is near that of MCLMC, which is 5.42."""
    rows = tb.datasets.diabetes()
    x, y = np.asarray(rows.x), np.asarray(rows.y)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:353], order[353:]
    model = tb.Model(defaults.network(), defaults.prior(), defaults.of_numbers())
    posterior = fit_standardised(method, model, x[train], y[train], key=jax.random.key(0))
    assert -float(np.mean(posterior.predict(x[test]).log_prob(y[test]))) < 5.5


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
