"""Simulation-based calibration lets right draws pass and wrong ones not.

Each assertion that something passes raises a false alarm once in a hundred keys; the keys are fixed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from tunbridge.inference.base import Method
from tunbridge.runtime import chunk

SIGMA, TAU, SIMULATIONS = 0.5, 1.5, 200
X = np.random.default_rng(0).normal(size=(5, 2))


class Line(Method):
    """Exact draws of linear regression, moved by `shift` and stretched by `stretch`; `prior` ignores the data."""

    shift: float = 0.0
    stretch: float = 1.0
    prior: bool = False

    def posteriors(self, model, data, key, size, options):
        model, rows = model.bind(data)
        phi = np.column_stack([np.asarray(rows.x, np.float64), np.ones(rows.num)])
        precision = np.eye(3) / TAU**2 + (0.0 if self.prior else 1.0) * phi.T @ phi / SIGMA**2
        mean = (0.0 if self.prior else 1.0) * np.linalg.solve(precision, phi.T @ np.asarray(rows.y)[:, 0]) / SIGMA**2
        root = np.linalg.cholesky(np.linalg.inv(precision))
        z = self.stretch * np.asarray(jax.random.normal(key, (100, 3)), np.float64) + self.shift
        w = jnp.asarray(mean + z @ root.T)
        params = tb.Params({"layers": [{"weight": w[:, :2, None], "bias": w[:, 2:]}]})
        return [tb.Draws(model, key, params)] * size


def line(key, **broken):
    model = tb.Model(tb.networks.MLP((), outputs=1), tb.priors.Normal(TAU), tb.likelihoods.Gaussian(SIGMA))
    return tb.bench.sbc(Line(**broken), model, X, key=key, simulations=SIMULATIONS, progress=False)


@pytest.mark.slow
def test_exact_draws_pass_and_all_quantities_are_ranked(key):
    found = line(key)
    assert found.passes, str(found)
    assert set(found.ranks) == {"f(0)", "f(1)", "f(2)", "log likelihood", "log prior"}
    assert all(values.shape == (SIMULATIONS,) for values in found.ranks.values())
    assert "Ranks are uniform." in str(found)
    assert "<td>log likelihood</td>" in found._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("broken", [{"shift": 0.5}, {"stretch": 0.7}], ids=str)
def test_wrong_draws_fail(broken, key):
    found = line(key, **broken)
    assert not found.passes
    assert "The draws are not those of the posterior." in " ".join(str(found).split())


@pytest.mark.slow
def test_the_prior_is_found_out_by_the_log_likelihood_alone():
    """The prior's own ranks are even in all that does not look at the data."""
    found = line(jax.random.key(1), prior=True)
    assert found.doubtful == ["log likelihood"]
    assert not found.passes


def test_too_few_independent_draws_never_pass(key):
    even = {"f": np.linspace(0.0, 1.0, 200)}
    assert tb.diagnostics.Calibration(even, {"f": np.full(200, 30)}).passes
    few = tb.diagnostics.Calibration(even, {"f": np.full(200, 5)})
    assert not few.passes
    assert "too few to tell" in str(few)


def test_other_temperatures_and_a_handful_of_simulations_are_refused(key):
    model = tb.Model(tb.networks.MLP((), outputs=1), tb.priors.Normal(TAU), tb.likelihoods.Gaussian(SIGMA))
    cold = tb.Ensemble(tb.HMC(run=tb.Run(temperature=0.5)), 2)
    with pytest.raises(tb.InputError, match="temperature 1"):
        tb.bench.sbc(cold, model, X, key=key)
    with pytest.raises(tb.InputError, match="at least 20 simulations"):
        tb.bench.sbc(Line(), model, X, key=key, simulations=3)
    with pytest.raises(tb.InputError, match="knows its outputs"):
        tb.bench.sbc(Line(), tb.Model(tb.networks.MLP(()), tb.priors.Normal(), model.likelihood), X, key=key)


class WithoutJacobian(tb.likelihoods.Gaussian):
    """Unknown noise whose density forgets that it is sampled on another scale."""

    def log_noise(self, noise, *, jacobian=True):
        return super().log_noise(noise, jacobian=False)


RUN = tb.Run(chains=2, warmup=200, draws=200)
SAMPLERS = {
    "hmc": tb.HMC(run=RUN),
    "nuts": tb.NUTS(run=RUN),
    "adjustedmclmc": tb.AdjustedMCLMC(run=RUN),
}


def net(method, key, likelihood=tb.likelihoods.Gaussian, simulations=150):
    """A net of three tanh units, with unknown noise, on six points."""
    noise = likelihood(dist.LogNormal(-1.0, 0.7))
    model = tb.Model(tb.networks.MLP((3,), outputs=1), tb.priors.Normal(tb.priors.fan_in(1.0)), noise)
    x = np.linspace(-2.0, 2.0, 6)[:, None]
    return tb.bench.sbc(method, model, x, key=key, inputs=[[-1.0], [3.0]], simulations=simulations, progress=False)


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize("name", SAMPLERS)
def test_exact_samplers_pass_on_a_small_network(name, key):
    found = net(SAMPLERS[name], key)
    assert found.passes, str(found)
    assert set(found.ranks) == {"f(0)", "f(1)", "noise", "log likelihood", "log prior"}


@pytest.mark.slow
@pytest.mark.optimised
def test_a_step_that_is_far_too_large_fails(key):
    run = tb.Run(chains=2, warmup=200, draws=200, thin=5)
    found = net(tb.ULA(acceptance=0.4, run=run), key)
    assert found.doubtful, str(found)


@pytest.mark.slow
@pytest.mark.optimised
def test_noise_sampled_without_its_jacobian_fails(key):
    found = net(SAMPLERS["hmc"], key, WithoutJacobian)
    assert "noise" in found.doubtful, str(found)


@pytest.mark.slow
def test_one_compiled_program_serves_all_simulations(key):
    net(SAMPLERS["hmc"], key, simulations=20)
    compiled = chunk.chunk._cache_size()
    net(SAMPLERS["hmc"], jax.random.fold_in(key, 1), simulations=20)
    assert chunk.chunk._cache_size() == compiled
