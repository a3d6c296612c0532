import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import tunbridge as tb
from model.networks.programs.test_reading import Convolutional
from toys import labelled, model, table
from tunbridge.core.random import split
from tunbridge.inference.point import masks


def _bound(hidden=(4, 3), scale=0.5, sigma=0.3):
    bound, rows = model(hidden, tb.likelihoods.Gaussian(sigma), tb.priors.Normal(scale)).bind(table(24))
    return bound, rows, tb.Params(jax.jit(bound.network.init)(jax.random.key(1), rows.x))


def test_masked_weights_are_masked_units_to_the_bit(key):
    bound, rows, params = _bound()
    layout = bound.network.layout(params.weights)
    rates = masks.place(bound, params.weights, 0.5, 0.3)
    drawn = masks.draw(key, rates, params.weights, layout)
    layers, z = params.weights["layers"], rows.x
    for i, layer in enumerate(layers):
        mask = drawn[2 * i + 1]
        assert mask.shape == (layer["weight"].shape[0], 1)
        z = (z * mask[:, 0][None]) @ layer["weight"] + layer["bias"][None]
        z = jnp.tanh(z) if i + 1 < len(layers) else z
    by_weights = bound.outputs(masks.apply(bound, params, drawn), rows.x)
    assert 0 < sum(float(mask.sum()) for mask in drawn if mask is not None) < 3 + 4 + 3
    np.testing.assert_array_equal(by_weights, z)


@pytest.mark.slow
def test_a_convolution_drops_whole_channels_to_the_bit(key):
    network = tb.networks.from_equinox(module := Convolutional(key))
    data = tb.Data(np.random.default_rng(0).normal(size=(4, 2, 6, 6)), np.arange(4))
    bound, rows = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Categorical(5)).bind(data)
    params = tb.Params(network.weights)
    rates = masks.place(bound, params.weights, 0.5, None)
    assert [rate for rate in rates if rate is not None] == [0.5, 0.5]
    drawn = masks.draw(jax.random.key(3), rates, params.weights, network.layout(params.weights))
    second, head = (mask for mask in drawn if mask is not None)
    assert (second.shape, head.shape) == ((1, 3, 1, 1), (1, 4))

    def by_units(x):
        z = module.second(jax.nn.relu(module.first(x)) * second[0])
        return module.head(module.norm(jax.nn.relu(z).mean(axis=(1, 2))) * head[0])

    by_weights = bound.outputs(masks.apply(bound, params, drawn), rows.x)
    np.testing.assert_array_equal(by_weights, jax.vmap(by_units)(rows.x))


def test_a_window_over_each_channel_by_itself_has_no_units_to_drop(key):
    from flax import linen

    module = linen.Sequential(
        [linen.Conv(4, (3, 3)), linen.Conv(4, (3, 3), feature_group_count=4), lambda z: z.mean((1, 2))]
    )
    data = tb.Data(np.ones((4, 6, 6, 2)), np.arange(4))
    network = tb.networks.from_flax(module, data.x)
    bound, _ = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Categorical(4)).bind(data)
    assert masks.place(bound, network.weights, 0.3, None) == (None, None, None, None)


def test_the_expected_log_prior_is_the_mean_over_all_masks(x64):
    bound, _, params = _bound((2,))
    target = tb.Target(bound, 24.0)
    rates = masks.place(bound, params.weights, 0.3, 0.2)
    shapes = [(3, 1), (2, 1)]
    mean = 0.0

    @jax.jit
    def density(first, second):
        return target.log_prior_weights(masks.apply(bound, params, (None, first, None, second)))

    for bits in itertools.product([0.0, 1.0], repeat=5):
        first, second = np.array(bits[:3]).reshape(shapes[0]), np.array(bits[3:]).reshape(shapes[1])
        chance = np.prod(np.where(first, 0.8, 0.2)) * np.prod(np.where(second, 0.7, 0.3))
        mean += chance * float(density(first, second))
    found = jax.jit(lambda params: masks.expected_log_prior(target, params, rates))(params)
    np.testing.assert_allclose(found, mean, rtol=1e-12)


def test_it_is_the_weight_decay_of_the_paper_and_the_rest_is_constant(x64):
    """(1 - p) l^2 |M|^2 / 2 + l^2 |m|^2 / 2 with l = 1 / scale."""
    rates, constants = None, []
    for factor in (0.5, 1.0, 3.0):
        bound, _, params = _bound((4,), scale=0.5)
        params = jax.tree.map(lambda leaf, factor=factor: factor * (leaf + 0.1), params)
        rates = masks.place(bound, params.weights, 0.3, None)
        (first, second), length = params.weights["layers"], 2.0
        decay = 0.7 * np.sum(second["weight"] ** 2) + sum(
            np.sum(leaf**2) for leaf in (first["weight"], first["bias"], second["bias"])
        )
        expected = jax.jit(
            lambda params, of=bound, rates=rates: masks.expected_log_prior(tb.Target(of, 24.0), params, rates)
        )
        constants.append(expected(params) + length**2 / 2 * decay)
    np.testing.assert_allclose(constants, constants[0], rtol=1e-12)


def test_the_kl_of_a_narrow_mixture_differs_by_a_constant():
    """KL(p N(0, s^2) + (1 - p) N(m, s^2) || N(0, 1)) - (1 - p) m^2 / 2 does not depend on m >> s."""
    p, s = 0.3, 0.01
    left = []
    for m in (0.5, 1.0, 2.0):
        w = np.concatenate([np.linspace(-0.1, 0.1, 20_001), np.linspace(m - 0.1, m + 0.1, 20_001)])
        q = p * stats.norm(0, s).pdf(w) + (1 - p) * stats.norm(m, s).pdf(w)
        terms = q * (np.log(np.maximum(q, 1e-300)) - stats.norm(0, 1).logpdf(w))
        kl = np.trapezoid(terms[:20_001], w[:20_001]) + np.trapezoid(terms[20_001:], w[20_001:])
        left.append(kl - (1 - p) * m**2 / 2)
    np.testing.assert_allclose(left, left[0], atol=1e-6)
    np.testing.assert_allclose(left[0], -np.log(s) - 0.5 - stats.bernoulli(p).entropy() + s**2 / 2, atol=1e-6)


def test_tau_and_weight_decay_are_two_names_of_one_thing(key, x64):
    """The gradient of the bound is that of N tau (half the mean squared error + decay), with the same masks."""
    tau, length, rate = 1 / 0.3**2, 2.0, 0.25
    bound, rows, params = _bound((4,), scale=1 / length, sigma=0.3)
    decay = tb.weight_decay_from_tau(tau, rate, length, rows.num)
    assert tb.tau_from_weight_decay(decay, rate, length, rows.num) == pytest.approx(tau, rel=1e-12)
    method, target = tb.MCDropout(rate=rate, groups=1), tb.Target(bound, float(rows.num))
    layout = bound.network.layout(params.weights)
    rates = masks.place(bound, params.weights, rate, None)
    drawn = jax.jit(lambda key: masks.draw(key, rates, params.weights, layout))(split(key, 1)[0])
    whole = tb.weight_decay_from_tau(tau, 0.0, length, rows.num)

    def loss(weights):
        first, second = weights["layers"]
        outputs = bound.outputs(masks.apply(bound, tb.Params(weights), drawn), rows.x)
        rest = sum(jnp.sum(leaf**2) for leaf in (first["weight"], first["bias"], second["bias"]))
        return 0.5 * jnp.mean((rows.y - outputs) ** 2) + decay * jnp.sum(second["weight"] ** 2) + whole * rest

    wanted = jax.jit(jax.grad(loss))(params.weights)
    found = jax.jit(jax.grad(lambda w: -method.objective(key, target, tb.Params(w), (), rows)))(params.weights)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, rows.num * tau * b, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_a_prior_with_a_corner_at_zero_has_a_finite_expectation_and_gradient(x64):
    """(1 - p) log p(M) + p log p(0) of a group lasso, whose gradient at 0 is not defined."""
    prior = tb.priors.LogDensity(lambda w: -sum(jnp.linalg.norm(leaf) for leaf in jax.tree.leaves(w)))
    bound, rows = tb.Model(tb.networks.MLP((4,)), prior, tb.likelihoods.Gaussian(0.3)).bind(table(12))
    weights = jax.tree.map(lambda leaf: leaf + 0.1, bound.network.init(jax.random.key(0), rows.x))
    target, rates = tb.Target(bound, 12.0), masks.place(bound, weights, 0.25, 0.5)
    value, gradient = jax.value_and_grad(lambda w: masks.expected_log_prior(target, tb.Params(w), rates))(weights)
    norms = [float(jnp.linalg.norm(leaf)) for leaf in jax.tree.leaves(weights)]
    kept = [1.0 if rate is None else 1.0 - rate for rate in rates]
    np.testing.assert_allclose(value, -np.dot(kept, norms), rtol=1e-12)
    for share, leaf, found in zip(kept, jax.tree.leaves(weights), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(found, -share * leaf / jnp.linalg.norm(leaf), rtol=1e-12)


@pytest.mark.slow
def test_predictive_variance_is_that_of_the_passes_plus_one_over_tau(key):
    """And the log likelihood is logsumexp(-tau/2 (y - f_t)^2) - log T - 1/2 log 2 pi + 1/2 log tau."""
    sigma, num = 0.3, 50
    data, made = table(24), model((8,), tb.likelihoods.Gaussian(0.3))
    posterior = tb.MCDropout(rate=0.3, train=tb.Train(100)).fit(made, data, key=key)
    predictive = posterior.predict(data.x, num=num)
    weights = posterior.sample(posterior.key, num)
    passes = np.asarray(jax.vmap(lambda p: posterior.model.outputs(p, data.x))(weights), np.float64)[..., 0]
    np.testing.assert_allclose(predictive.variance[:, 0], passes.var(axis=0) + sigma**2, rtol=1e-4)
    tau, error = 1 / sigma**2, np.asarray(data.y)[:, 0] - passes
    log_likelihood = logsumexp(-tau / 2 * error**2, axis=0) - np.log(num) - 0.5 * np.log(2 * np.pi) + 0.5 * np.log(tau)
    np.testing.assert_allclose(predictive.log_prob(data.y), log_likelihood, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_rate_nought_is_map_to_rounding(key):
    data, made = table(24), model((4,))
    point = tb.MAP(train=tb.Train(50)).fit(made, data, key=key)
    none = tb.MCDropout(rate=0.0, train=tb.Train(50)).fit(made, data, key=key)
    np.testing.assert_allclose(none.predict(data.x).mean, point.predict(data.x).mean, rtol=2e-3, atol=1e-4)
    assert float(none.predict(data.x).epistemic.max()) < 1e-12


@pytest.mark.slow
def test_relaxed_masks_keep_as_many_units_and_have_a_derivative():
    """Mean over 40,000 units within 5 standard errors: a false alarm in a million."""
    like, layout = {"w": jnp.ones((40_000, 1))}, {"w": tb.networks.Leaf("weight", (0,), (1,))}
    for rate in (0.1, 0.5):
        (relaxed,) = masks.draw_relaxed(jax.random.key(0), (jnp.asarray(rate),), like, layout)
        (hard,) = masks.draw(jax.random.key(0), (rate,), like, layout)
        error = 5 * np.sqrt(rate * (1 - rate) / 40_000)
        assert set(np.unique(hard)) == {0.0, 1.0}
        assert abs(float(hard.mean()) - (1 - rate)) < error
        assert abs(float(relaxed.mean()) - (1 - rate)) < error + 0.02
        gradient = jax.grad(lambda p: jnp.mean(masks.draw_relaxed(jax.random.key(0), (p,), like, layout)[0]))(rate)
        assert -1.3 < float(gradient) < -0.7


@pytest.mark.slow
def test_learned_rates_grow_where_there_is_nothing_to_learn(key):
    """With y of pure noise the likelihood has no use for units, and entropy and prior push the rate up."""
    rng = np.random.default_rng(0)
    data = tb.Data(rng.normal(size=(40, 3)), rng.normal(size=40))
    made = model((20,), tb.likelihoods.Gaussian(1.0))
    posterior = tb.MCDropout(rate=0.05, learn=True, train=tb.Train(1000)).fit(made, data, key=key)
    (learned,) = (float(rate) for rate in posterior.rates if rate is not None)
    assert 0.2 < learned < 0.8


@pytest.mark.slow
def test_a_larger_length_scale_makes_smoother_functions(key):
    """The prior of the weights is N(0, 1 / l^2): functions drawn from it have slopes that fall with l."""
    x = np.linspace(-2, 2, 200)[:, None]
    slopes = []
    for length in (0.1, 1.0, 10.0):
        made = tb.Model(tb.networks.MLP((50,), outputs=1), tb.priors.Normal(1 / length), tb.likelihoods.Gaussian(0.1))
        draws = jax.vmap(lambda k, made=made: made.outputs(made.sample_params(k, x), x))(jax.random.split(key, 50))
        slopes.append(float(jnp.mean(jnp.abs(jnp.diff(draws[..., 0], axis=1)))))
    assert slopes[0] > 3 * slopes[1] > 9 * slopes[2]


def test_dropout_needs_a_layout_and_says_so(key):
    network = tb.networks.from_functions(lambda k, x: {"w": jnp.ones((3, 1))}, lambda w, x: x @ w["w"])
    made = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(1.0))
    with pytest.raises(tb.InputError, match=r"layout of every weight, which dropout needs; got none for w"):
        tb.MCDropout(train=tb.Train(2)).fit(made, table(24), key=key)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"rate": 1.0}, "rate between"), ({"rate": 0.0, "learn": True}, "rate between"), ({"groups": 0}, "groups as")],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(tb.InputError, match=message):
        tb.MCDropout(**settings)


@pytest.mark.slow
def test_a_dropped_class_predictor_is_less_sure_than_map(key):
    data = labelled(60)
    made = tb.Model(tb.networks.MLP((20,)), tb.priors.Normal(1.0), tb.likelihoods.Categorical())
    point = tb.MAP(train=tb.Train(300)).fit(made, data, key=key).predict(data.x)
    dropped = tb.MCDropout(rate=0.3, train=tb.Train(300)).fit(made, data, key=key).predict(data.x)
    assert float(dropped.entropy.mean()) > float(point.entropy.mean())
    assert float(dropped.epistemic.mean()) > 0.01


@pytest.mark.slow
def test_noise_measured_under_dropout_is_that_of_the_data():
    """Over six keys. 40 rows are held out, so that log sigma has a standard deviation of 80 ** -0.5 = 0.11 a key.

    Coverage of 90 % intervals falls by 0.34 for each unit of log sigma: 0.038 a key. Bounds at 3 standard errors: false
    alarm 0.5 %.
    """
    made = model((30,), tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)))
    data, test = table(200, noise=0.3), table(2000, noise=0.3, seed=1)
    fits = [tb.MCDropout(rate=0.2).fit(made, data, key=jax.random.key(seed)) for seed in range(6)]
    ratios = [np.log(float(fit.model.likelihood.sigma(fit.params.noise)) / 0.3) for fit in fits]
    coverages = [tb.metrics.coverage(fit.predict(test.x), test.y) for fit in fits]
    assert abs(np.mean(ratios)) < 3 * 80**-0.5 / 6**0.5
    assert abs(np.mean(coverages) - 0.9) < 3 * 0.038 / 6**0.5


def test_at_the_mean_of_masks_a_weight_is_multiplied_by_the_probability_that_its_unit_stays(key):
    bound, data = model(hidden=(5, 4)).bind(table(12))
    params = jax.jit(bound.sample_params)(key, data.x)
    rates = masks.place(bound, params.weights, 0.3, 0.1)
    found = masks.mean(bound, params, rates)
    pairs = zip(*(jax.tree.leaves(each.weights) for each in (params, found)), rates, strict=True)
    shares = [float(np.asarray(after / before).mean()) for before, after, rate in pairs if rate is not None]
    np.testing.assert_allclose(shares, [0.9, 0.7, 0.7], rtol=1e-5)
