import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import equal, labelled, model, table
from tunbridge.applications import compression
from tunbridge.core import linalg
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.inference.vi.spreads import Dense, Diagonal


def normal(made=None, data=None):
    """A mean-field posterior of made-up moments, noise and scales known where there are any."""
    bound, rows = (made or model()).bind(data or table())
    like, rng = jax.eval_shape(bound.sample_params, jax.random.key(0), rows.x), np.random.default_rng(0)
    mean = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), like)
    leaves = jax.tree.leaves(mean)
    spreads = tuple(Diagonal(jnp.asarray(rng.uniform(-2.0, 2.0, leaf.shape), leaf.dtype)) for leaf in leaves)
    q = Gaussian(mean, spreads, tuple((number,) for number in range(len(leaves))))
    return tb.VariationalGaussian(bound, jax.random.key(1), q, notes=("Made up.",))


@pytest.fixture(scope="module")
def posterior():
    return normal()


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_the_smallest_ratios_become_exactly_zero_and_nothing_else_changes(posterior):
    ratios = flat(posterior.q.mean.weights) / np.sqrt(flat(posterior.q.variance().weights))
    np.testing.assert_allclose(flat(compression.signal_to_noise(posterior)), np.abs(ratios), rtol=1e-5)
    pruned = compression.prune_by_snr(posterior, 0.5)
    gone = ~flat(pruned.kept)
    assert gone.sum() == round(0.5 * len(ratios)) == pruned.num_weights - pruned.num_kept
    assert np.abs(ratios[gone]).max() <= np.abs(ratios[~gone]).min()
    draws, before = (flat_draws(one.sample(jax.random.key(2), 5)) for one in (pruned, posterior))
    np.testing.assert_array_equal(draws[:, gone], 0.0)
    np.testing.assert_array_equal(draws[:, ~gone], before[:, ~gone])
    np.testing.assert_array_equal(flat(pruned.one().weights)[gone], 0.0)
    assert flat_draws(pruned.components(pruned.key, 5)).shape == (5, len(ratios))


def flat_draws(params):
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(params.weights)], axis=1)


def test_the_smallest_means_go_by_magnitude_of_points_too(posterior):
    size = np.abs(flat(posterior.q.mean.weights))
    point = tb.Point(posterior.model, posterior.key, posterior.q.mean)
    for one in (posterior, point):
        gone = ~flat(compression.prune_by_magnitude(one, 0.3).kept)
        assert gone.sum() == round(0.3 * len(size))
        assert size[gone].max() <= size[~gone].min()
    with pytest.raises(tb.InputError, match="got Point"):
        compression.prune_by_snr(point, 0.3)


def test_biases_may_be_left_alone(posterior):
    pruned = compression.prune_by_snr(posterior, 1.0, biases=False)
    for layer in pruned.kept["layers"]:
        assert layer["bias"].all()
        assert not layer["weight"].any()
    half = compression.prune_by_snr(posterior, 0.5, biases=False)
    num = sum(layer["weight"].size for layer in half.kept["layers"])
    assert half.num_weights - half.num_kept == num // 2
    bare = tb.networks.from_functions(lambda key, x: {"w": jnp.ones((3, 1))}, lambda w, x: x @ w["w"])
    own = normal(tb.Model(bare, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1)))
    assert compression.prune_by_snr(own, 1 / 3).num_kept == 2
    with pytest.raises(tb.InputError, match="a layout of every weight, which biases=False needs"):
        compression.prune_by_snr(own, 1 / 3, biases=False)


def test_pruning_twice_is_pruning_once_with_the_larger_fraction(posterior):
    once = compression.prune_by_snr(posterior, 0.75)
    assert equal(compression.prune_by_snr(compression.prune_by_snr(posterior, 0.5), 0.75), once)
    assert equal(compression.prune_by_snr(once, 0.5), once)
    assert equal(compression.prune_by_snr(posterior, 0.0).sample(once.key, 5), posterior.sample(once.key, 5))


def test_what_is_pruned_is_saved_and_loaded_to_the_bit(posterior, tmp_path):
    pruned = compression.prune_by_snr(posterior, 0.6)
    pruned.save(tmp_path)
    found = tb.load(tmp_path)
    assert type(found) is tb.Pruned
    assert equal(found, pruned)
    x = table().x
    np.testing.assert_array_equal(found.predict(x, num=5).mean, pruned.predict(x, num=5).mean)


@pytest.mark.slow
def test_unknown_scales_multiply_signal_and_noise_alike():
    made = normal(model(prior=tb.priors.Normal(dist.HalfNormal(1.0))))
    ratios = flat(made.q.mean.weights) / np.sqrt(flat(made.q.variance().weights))
    np.testing.assert_allclose(flat(compression.signal_to_noise(made)), np.abs(ratios), rtol=1e-5)
    pruned = compression.prune_by_snr(made, 0.5)
    gone = ~flat(pruned.kept)
    drawn = jax.vmap(made.model.weights)(pruned.sample(jax.random.key(0), 5))
    np.testing.assert_array_equal(flat_draws(tb.Params(drawn))[:, gone], 0.0)
    assert np.ptp(flat_draws(tb.Params(drawn))[:, ~gone], axis=0).min() > 0
    by_size = compression.prune_by_magnitude(made, 0.5)
    size = np.abs(flat(made.model.weights(made.q.mean)))
    assert size[~flat(by_size.kept)].max() <= size[flat(by_size.kept)].min()


def test_weights_that_their_prior_mixes_are_refused():
    def init(key, x):
        return {"w": jnp.ones((3, 1, 2))}

    layout = {"w": tb.networks.Leaf("weight", inputs=(1,), outputs=(2,), shared=(0,))}
    network = tb.networks.from_functions(init, lambda w, x: x @ w["w"][:, 0, :1], layout=layout)
    smooth = tb.priors.FilterGroups(length=1.0)
    made = normal(tb.Model(network, smooth, tb.likelihoods.Gaussian(0.1)))
    with pytest.raises(tb.InputError, match="FilterGroups, which mixes them"):
        compression.signal_to_noise(made)


@pytest.mark.slow
def test_correlated_weights_count_by_their_own_variances(posterior):
    leaves = jax.tree.leaves(posterior.q.mean)
    sds = jnp.sqrt(jnp.asarray(flat(posterior.q.variance())))
    root = jnp.diag(sds) * jnp.sqrt(0.5) + jnp.tril(0.1 * jnp.ones((len(sds), len(sds))), -1)
    dense = dataclasses.replace(Dense.of(jnp.diag(root)), lower=len(sds) ** 0.5 * root / jnp.diag(root)[:, None])
    q = Gaussian(posterior.q.mean, (dense,), (tuple(range(len(leaves))),))
    ratios = flat(compression.signal_to_noise(tb.VariationalGaussian(posterior.model, posterior.key, q)))
    wanted = np.abs(flat(q.mean)) / np.sqrt(np.diag(root @ root.T))
    np.testing.assert_allclose(ratios, wanted, rtol=1e-4)
    factors = jax.tree.map(lambda leaf: jnp.full((2, *leaf.shape), 0.3), q.mean.weights)
    variance = posterior.q.variance().weights
    low = tb.LowRankGaussian(posterior.model, posterior.key, q.mean, variance, factors)
    wanted = np.abs(flat(q.mean)) / np.sqrt(flat(variance) + 2 * 0.3**2)
    np.testing.assert_allclose(flat(compression.signal_to_noise(low)), wanted, rtol=1e-5)


def test_of_a_laplace_posterior_what_is_known_is_certain(posterior):
    num = len(flat(posterior.q.mean.weights))
    some = linalg.Diagonal(jnp.arange(20, num), jnp.full(num - 20, 0.25), jnp.zeros(num - 20))
    parts = (linalg.Covariance((some,), num), tb.structures.Diagonal(), tb.subsets.LastLayer())
    gaussian = tb.StructuredGaussian(posterior.model, posterior.key, posterior.q.mean, *parts)
    ratios = flat(compression.signal_to_noise(gaussian))
    assert np.isinf(ratios[:20]).all()
    np.testing.assert_allclose(ratios[20:], np.abs(flat(posterior.q.mean.weights))[20:] / 0.5, rtol=1e-6)
    kept = flat(compression.prune_by_snr(gaussian, (num - 20) / num).kept)
    np.testing.assert_array_equal(kept, np.arange(num) < 20)


def test_a_posterior_in_the_units_of_the_data_stays_in_them(posterior):
    data = table()
    scaling = tb.datasets.Scaling.of(np.asarray(data.x), 10.0 * np.asarray(data.y))
    outer = tb.Standardised(posterior.model, posterior.key, posterior, scaling)
    pruned = compression.prune_by_snr(outer, 0.5)
    assert equal(pruned.posterior, compression.prune_by_snr(posterior, 0.5))
    mean = pruned.posterior.predict(scaling.inputs(np.asarray(data.x)), num=5).mean
    wanted = scaling.y_shift + scaling.y_scale * np.asarray(mean)
    np.testing.assert_allclose(pruned.predict(data.x, num=5).mean, wanted, rtol=1e-4)


def test_posteriors_without_moments_and_wrong_fractions_are_refused(posterior):
    mixture = tb.Mixture(posterior.model, posterior.key, (posterior, posterior))
    for prune in (compression.prune_by_snr, compression.prune_by_magnitude):
        with pytest.raises(tb.InputError, match="got Mixture"):
            prune(mixture, 0.5)
        with pytest.raises(tb.InputError, match=r"a fraction from 0 to 1; got 75"):
            prune(posterior, 75)
    with pytest.raises(tb.InputError, match="by= as one of 'snr', 'magnitude'"):
        compression.pruning_curve(posterior, table(), by="size")


def test_a_curve_ends_where_nothing_is_left(posterior):
    data = table()
    curve = compression.pruning_curve(posterior, data, (0.0, 0.5, 1.0), num=5)
    assert [row["removed"] for row in curve.rows] == [0.0, 0.5, 1.0]
    assert [row["kept"] for row in curve.rows] == [26, 13, 0]
    wanted = posterior.predict(data.x, num=5)
    assert curve.rows[0]["RMSE"] == pytest.approx(tb.metrics.rmse(wanted, data.y), rel=1e-5)
    assert curve.rows[0]["NLL"] == pytest.approx(-tb.metrics.log_score(wanted, data.y), rel=1e-5)
    assert curve.rows[2]["RMSE"] == pytest.approx(float(jnp.sqrt(jnp.mean(jnp.square(data.y)))), rel=1e-5)
    assert "removed" in str(curve)


def test_a_curve_of_classes_tells_the_error():
    data = labelled()
    bound, rows = model(likelihood=tb.likelihoods.Categorical()).bind(data)
    point = tb.Point(bound, jax.random.key(0), tb.Params(jax.jit(bound.network.init)(jax.random.key(1), rows.x)))
    first, last = compression.pruning_curve(point, data, (0.0, 1.0), by="magnitude").rows
    assert first["error"] == pytest.approx(1 - tb.metrics.accuracy(point.predict(data.x), data.y))
    assert last["NLL"] == pytest.approx(np.log(3), rel=1e-5)
    assert first["by"] == "magnitude"


def test_ten_times_is_twenty_decibels():
    found = compression.decibels({"w": jnp.array([0.1, 1.0, 10.0])})
    np.testing.assert_allclose(found["w"], [-20.0, 0.0, 20.0], atol=1e-5)
