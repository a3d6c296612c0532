"""Sparse priors find what was planted, and their modes and draws are what theory says."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from tunbridge.model.priors import ARD, ByPath, Horseshoe, Laplace, Normal

pytestmark = [pytest.mark.slow, pytest.mark.optimised]
RUN = tb.Run(chains=4, warmup=500, draws=300)


def test_a_horseshoe_finds_what_was_planted_and_little_else():
    """Three problems of 5 slopes among 50: power above 90 %, false discoveries under 10 %, with fixed keys."""
    prior = ByPath({"*/bias": Normal(10.0)}, default=Horseshoe(dist.HalfCauchy(0.1), slab=dist.HalfNormal(5.0)))
    model = tb.Model(tb.networks.MLP(()), prior, tb.likelihoods.Gaussian(dist.HalfNormal(2.0)))
    right = wrong = 0
    for problem in range(3):
        rng = np.random.default_rng(problem)
        x, slopes = rng.normal(size=(100, 50)), np.zeros(50)
        slopes[:5] = rng.choice([-1, 1], 5) * rng.uniform(1.0, 3.0, 5)
        data = tb.Data(x, x @ slopes + rng.normal(size=100))
        posterior = tb.NUTS(run=RUN).fit(model, data, key=jax.random.key(problem), progress=False)
        drawn = jax.vmap(posterior.model.weights)(posterior.components(posterior.key, None))
        low, high = np.quantile(np.asarray(drawn["layers"][0]["weight"])[:, :, 0], [0.025, 0.975], axis=0)
        chosen = (low > 0) | (high < 0)
        right, wrong = right + chosen[:5].sum(), wrong + chosen[5:].sum()
    assert right / 15 > 0.9
    assert wrong / (right + wrong) < 0.1


def test_ard_tells_inputs_that_matter_from_noise(key):
    """The least scale of three relevant inputs is more than ten times the largest of seven irrelevant ones."""
    model = tb.Model(tb.networks.MLP((8,)), ARD(dist.HalfCauchy(1.0)), tb.likelihoods.Gaussian(dist.HalfNormal(1.0)))
    x = jax.random.normal(key, (150, 10))
    y = jnp.sin(1.5 * x[:, 0]) + 0.7 * x[:, 1] + jnp.tanh(2.0 * x[:, 2])
    data = tb.Data(x, y + 0.1 * jax.random.normal(jax.random.fold_in(key, 1), y.shape))
    posterior = tb.NUTS(run=RUN).fit(model, data, key=key, progress=False)
    values = jax.vmap(posterior.model.prior.values)(posterior.components(posterior.key, None).scales)
    medians = np.median(np.asarray(values["inputs"]["relevance"][0])[:, :, 0], axis=0)
    assert medians[:3].min() / medians[3:].max() > 10.0


@pytest.mark.parametrize("name", ["diabetes", "breast_cancer"])
def test_modes_under_laplace_are_sparse_and_draws_never(name, key):
    likelihood = tb.likelihoods.Gaussian(0.7) if name == "diabetes" else tb.likelihoods.Bernoulli()
    rows = getattr(tb.datasets, name)()
    rows = tb.datasets.Scaling.of(rows.x, rows.y if name == "diabetes" else None).apply(rows)
    model = tb.Model(tb.networks.MLP(()), ByPath({"*/bias": Normal(10.0)}, default=Laplace(0.05)), likelihood)
    mode = tb.MAP().fit(model, rows, key=key, progress=False).params.weights["layers"][0]["weight"]
    posterior = tb.NUTS(run=RUN).fit(model, rows, key=key, progress=False)
    draws = np.asarray(posterior.components(posterior.key, None).weights["layers"][0]["weight"])
    assert (np.asarray(mode) == 0).sum() > 0
    assert (draws == 0).sum() == 0
    assert (draws.mean(axis=0) == 0).sum() == 0


def test_hierarchical_scales_are_calibrated(key):
    """Simulation-based calibration with unknown noise and an unknown prior scale; false alarm once in 100 keys."""
    prior = Normal(dist.LogNormal(0.0, 0.5))
    model = tb.Model(tb.networks.MLP((2,), outputs=1), prior, tb.likelihoods.Gaussian(dist.LogNormal(-1.0, 0.5)))
    x = np.random.default_rng(0).normal(size=(6, 1))
    method = tb.NUTS(run=tb.Run(chains=1, warmup=300, draws=300))
    found = tb.bench.sbc(method, model, x, key=key, simulations=100, progress=False)
    assert found.passes, str(found)
