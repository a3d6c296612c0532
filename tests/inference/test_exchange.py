import inspect

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import model, table
from tunbridge.datasets import Scaling
from tunbridge.inference import exchange

DATA = table(20)


@pytest.fixture(scope="module")
def chains():
    prior, likelihood = tb.priors.Normal(dist.HalfNormal(1.0)), tb.likelihoods.Gaussian(dist.Gamma(2.0, 2.0))
    bound, rows = model((), prior=prior, likelihood=likelihood).bind(DATA)
    rng = np.random.default_rng(0)
    like = jax.eval_shape(bound.sample_params, jax.random.key(0), rows.x)
    params = jax.tree.map(lambda leaf: jnp.asarray(0.1 * rng.normal(size=(4, 50, *leaf.shape)), leaf.dtype), like)
    names = ("log_density", "acceptance", "divergent", "energy", "gradients", "own")
    stats = {name: jnp.asarray(rng.uniform(size=(4, 50))) for name in names}
    return tb.Chains(bound, jax.random.key(1), params, stats, rows.x)


@pytest.fixture(scope="module")
def tree(chains):
    return chains.to_arviz(DATA)


def test_draws_are_named_by_path_and_in_their_own_units(chains, tree):
    posterior = tree["posterior"]
    assert set(posterior.data_vars) == {"weights.layers.0.bias", "weights.layers.0.weight", "scales.0", "noise.0"}
    np.testing.assert_allclose(posterior["noise.0"], np.exp(chains.params.noise[0]), rtol=1e-6)
    scale = np.exp(chains.params.scales[0])
    own = chains.params.weights["layers"][0]["weight"] * scale[..., None, None]
    np.testing.assert_allclose(posterior["weights.layers.0.weight"], own, rtol=1e-6)
    assert tree["prior"]["noise.0"].shape == (1, 500)
    assert float(tree["prior"]["noise.0"].mean()) == pytest.approx(1.0, abs=4 * 0.71 / np.sqrt(500))


def test_statistics_have_the_names_of_arviz(chains, tree):
    names = {"lp", "acceptance_rate", "diverging", "energy", "n_steps", "own"}
    assert set(tree["sample_stats"].data_vars) == names
    np.testing.assert_array_equal(tree["sample_stats"]["lp"], chains.stats["log_density"])


def test_log_likelihood_and_replicates_belong_to_their_draws(chains, tree):
    one = jax.tree.map(lambda leaf: leaf[2, 7], chains.params)
    by_hand = chains.model.log_likelihood(one, DATA.x, DATA.y)
    np.testing.assert_allclose(tree["log_likelihood"]["y"][2, 7], by_hand, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(tree["observed_data"]["y"], DATA.y[:, 0])
    replicates = np.asarray(tree["posterior_predictive"]["y"])
    noise = (replicates - chains.functions(DATA.x)[..., 0]) / np.exp(chains.params.noise[0])[..., None]
    assert noise.std() == pytest.approx(1.0, abs=4 / np.sqrt(2 * noise.size))
    assert tree["prior_predictive"]["y"].shape == (1, 500, 20)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, in arviz-stats
def test_arviz_takes_it_as_it_is(chains, tree):
    found = arviz_stats.loo(tree, reff=1.0, pointwise=True)
    np.testing.assert_allclose(found.elpd_i, chains.check(DATA).loo.elpd_i, rtol=1e-5)
    whole = {"round_to": "none"} if "round_to" in inspect.signature(arviz_stats.compare).parameters else {}
    table = arviz_stats.compare({"one": tree, "two": tree}, **whole)  # from 1.0 on it rounds
    assert table["elpd"].tolist() == pytest.approx([found.elpd] * 2, rel=1e-3)
    pit = arviz_stats.loo_pit(tree)["y"].values
    np.testing.assert_allclose(pit, chains.check(DATA).pit[:, 0], atol=0.12)
    assert set(arviz_stats.summary(tree, var_names=["noise.0"]).index) == {"noise.0"}


def test_other_posteriors_are_one_chain(chains):
    flat = chains.components(chains.key, None)
    tree = tb.Draws(chains.model, chains.key, flat).to_arviz()
    assert set(tree.children) == {"posterior"}
    assert tree["posterior"]["noise.0"].shape == (1, 200)
    point = tb.Point(chains.model, chains.key, jax.tree.map(lambda leaf: leaf[0], flat))
    assert point.to_arviz()["posterior"]["weights.layers.0.weight"].shape == (1, 1, 3, 1)


def test_a_standardised_posterior_speaks_in_the_units_of_the_data(chains, tree):
    scaling = Scaling(np.zeros(3), np.ones(3), np.array([5.0]), np.array([8.0]))
    outer = tb.Standardised(chains.model, chains.key, chains, scaling)
    scaled = outer.to_arviz(tb.Data(DATA.x, 5.0 + 8.0 * DATA.y))
    np.testing.assert_allclose(scaled["log_likelihood"]["y"], tree["log_likelihood"]["y"] - np.log(8.0), atol=1e-4)
    for group in ("posterior_predictive", "prior_predictive"):
        np.testing.assert_allclose(scaled[group]["y"], 5.0 + 8.0 * tree[group]["y"], rtol=1e-4, atol=1e-4)
    assert scaled["posterior"]["noise.0"].shape == (4, 50)


@pytest.mark.slow
def test_labels_stay_whole():
    bound, rows = model((), likelihood=tb.likelihoods.Bernoulli()).bind(tb.Data(DATA.x, DATA.y[:, 0] > 0))
    layer = {"weight": jnp.zeros((60, 3, 1)), "bias": jnp.zeros((60, 1))}
    tree = tb.Draws(bound, jax.random.key(0), tb.Params({"layers": [layer]})).to_arviz(rows)
    assert tree["posterior_predictive"]["y"].dims == ("chain", "draw", "point")
    assert tree["posterior_predictive"]["y"].dtype.kind == "i"
    np.testing.assert_allclose(tree["log_likelihood"]["y"], np.log(0.5), rtol=1e-5)


def test_what_is_too_large_is_refused_with_its_bytes(chains, monkeypatch):
    monkeypatch.setattr(exchange, "_MOST_BYTES", 1000)
    with pytest.raises(tb.InputError, match="GiB for 20 points"):
        chains.to_arviz(DATA)
    with pytest.raises(tb.InputError, match=r"as tb\.Data or a pair"):
        chains.to_arviz(np.zeros(3))
