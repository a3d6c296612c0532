"""The neural linear model: exact posterior, exact evidence, rows in portions, and what it refuses."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from flax import linen
from scipy import stats

import tunbridge as tb
from toys import equal, table
from tunbridge.bench import PROBLEMS
from tunbridge.inference.linear import evidence, features
from tunbridge.inference.linear.moments import Moments

UNKNOWN = tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))
NIG = tb.conjugate.NormalInverseGamma(2.0, 0.5)
KEY = jax.random.key(0)
ROWS = np.random.default_rng(0)
X, Y = ROWS.normal(size=(20, 3)), ROWS.normal(size=(20, 2))
"""Rows with two outputs."""


def layer(model, data, family=tb.conjugate.Normal(), weights=None, **options):
    """The exact layer above the features of weights that are given."""
    if weights is None:
        network = model.bind(data)[0].network  # a network of another library cannot be hashed
        weights = jax.jit(lambda key: network.init(key, data.x))(jax.random.key(3))
    return tb.NeuralLinear(None, family).fit(model, data, key=KEY, init=weights, **options)


def phi_of(posterior, x):
    """Features in NumPy: tanh units and a constant."""
    *hidden, _ = posterior.model.weights(posterior.params)["layers"]
    z = np.asarray(x)
    for one in hidden:
        z = np.tanh(z @ np.asarray(one["weight"]) + np.asarray(one["bias"]))
    return np.column_stack([z, np.ones(len(z))])


def linear(prior=1.0, likelihood=UNKNOWN, hidden=()):
    return tb.Model(tb.networks.MLP(hidden), tb.priors.Normal(prior), likelihood)


def test_features_are_what_the_last_layer_sees():
    posterior = layer(linear(likelihood=tb.likelihoods.Gaussian(0.5), hidden=(4,)), tb.Data(X, Y))
    np.testing.assert_allclose(posterior.features(X), phi_of(posterior, X), rtol=1e-5, atol=1e-6)


def test_without_hidden_layers_it_is_the_exact_linear_problem(x64):
    exact = PROBLEMS["linear"]()
    posterior = layer(exact.model, exact.data)
    found = posterior.compile(exact.x.shape)(exact.x)
    np.testing.assert_allclose(found.expected[:, 0], exact.mean, rtol=1e-8)
    np.testing.assert_allclose(np.sqrt(found.epistemic[:, 0]), exact.sd, rtol=1e-8)
    np.testing.assert_allclose(posterior.log_evidence, exact.log_evidence, rtol=1e-8)


@pytest.mark.slow
def test_draws_have_the_moments_of_the_posterior():
    """4,000 of them: the mean to 4 standard errors, the spread to 5 %."""
    exact = PROBLEMS["linear"]()
    drawn = exact.outputs(layer(exact.model, exact.data).sample(KEY, 4000))
    np.testing.assert_allclose(drawn.mean(0), exact.mean, atol=4.0 * exact.sd.max() / np.sqrt(4000))
    np.testing.assert_allclose(drawn.std(0), exact.sd, rtol=0.05)


@pytest.mark.parametrize(
    "each", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["shared noise", "noise per output"]
)
def test_normal_inverse_gamma_gives_the_multivariate_t_of_the_textbook(each, x64):
    """log p(y) is that of scipy's multivariate t; p(y_new | y) is the ratio of two such densities."""
    prior, width = dist.Gamma(0.5, 1.0), Y.shape[1]
    likelihood = tb.likelihoods.Gaussian(prior.expand([width]) if each else prior)
    posterior = layer(linear(1.3, likelihood, (4,)), tb.Data(X, Y), NIG)
    new_x, new_y = X[:2] + 0.5, Y[:2]

    def log_marginal(phi, y):
        kernel = NIG.rate / NIG.shape * (np.eye(len(phi)) + 1.3**2 / (NIG.rate / NIG.shape) * phi @ phi.T)
        if each:
            return sum(stats.multivariate_t.logpdf(y[:, j], None, kernel, 2 * NIG.shape) for j in range(width))
        return stats.multivariate_t.logpdf(y.T.ravel(), None, np.kron(np.eye(width), kernel), 2 * NIG.shape)

    old = log_marginal(phi := phi_of(posterior, X), Y)
    np.testing.assert_allclose(posterior.log_evidence, old, rtol=1e-9)
    phi_new = phi_of(posterior, new_x)
    wanted = [log_marginal(np.vstack([phi, phi_new[[i]]]), np.vstack([Y, new_y[[i]]])) - old for i in range(2)]
    np.testing.assert_allclose(posterior.predict(new_x).log_prob(new_y), wanted, rtol=1e-8)


@pytest.mark.slow
def test_the_student_predictive_agrees_with_scipy(x64):
    posterior = layer(linear(1.3, UNKNOWN, (4,)), tb.Data(X, Y), NIG)
    predictive = posterior.predict(X)
    shape, rate = NIG.updated(posterior.moments, posterior.solved, posterior.noise)
    stretch = 1.0 + np.asarray(predictive.epistemic / predictive.aleatoric)
    t = stats.t(2 * shape[0], np.asarray(predictive.mean), np.sqrt(rate[0] / shape[0] * stretch))
    np.testing.assert_allclose(predictive.quantile([0.05, 0.5])[0], t.ppf(0.05), rtol=1e-10)
    np.testing.assert_allclose(predictive.quantile(0.05), t.ppf(0.05), rtol=1e-10)
    np.testing.assert_allclose(predictive.cdf(Y), t.cdf(Y), rtol=1e-10)
    np.testing.assert_allclose(predictive.variance, t.var(), rtol=1e-10)
    np.testing.assert_allclose(predictive.entropy, t.entropy(), rtol=1e-10)
    np.testing.assert_array_equal(predictive.total, predictive.aleatoric + predictive.epistemic)


@pytest.mark.slow
def test_draws_of_noise_and_weights_have_the_moments_of_the_student_predictive():
    posterior = layer(linear(1.3, UNKNOWN, (4,)), tb.Data(X, Y), NIG)
    predictive, params = posterior.predict(X), posterior.sample(KEY, 20_000)
    outputs = np.asarray(jax.vmap(posterior.model.outputs, (0, None))(params, jnp.asarray(X)))
    noise = np.asarray(posterior.model.likelihood.sigma(params.noise)) ** 2
    np.testing.assert_allclose(outputs.var(0), predictive.epistemic, rtol=0.08)
    np.testing.assert_allclose(noise.mean(), predictive.aleatoric[0, 0], rtol=0.03)


@pytest.mark.parametrize("family", [tb.conjugate.Normal(), NIG], ids=["normal", "inverse-gamma"])
def test_rows_in_portions_give_the_posterior_of_all_rows(family, x64):
    model = linear(1.0, UNKNOWN, (4,))
    bound, _ = model.bind(tb.Data(X, Y))
    init = tb.Params(jax.jit(bound.network.init)(jax.random.key(3), X), (), (jnp.asarray(-1.0),))
    known = tb.NeuralLinear(None, family)
    weight = np.linspace(0.5, 2.0, len(X))
    whole = known.fit(model, tb.Data(X, Y, weight), key=KEY, init=init)
    init = whole.params  # the noise that the evidence chose, held from now on
    parts = [tb.Data(X[own], Y[own], weight[own]) for own in (slice(0, 7), slice(7, 8), slice(8, 20))]
    moments = features.gather(whole.model, whole.model.weights(init), parts[0])
    streamed = tb.LinearLayer.given(whole.model, KEY, init, family, moments)
    for part in parts[1:]:
        streamed = streamed.update(part)
    np.testing.assert_allclose(streamed.solved.mean, whole.solved.mean, rtol=1e-10)
    np.testing.assert_allclose(streamed.log_evidence, whole.log_evidence, rtol=1e-10)
    one, two = (posterior.compile(X.shape)(X) for posterior in (streamed, whole))
    for part, other in zip(one, two, strict=True):
        np.testing.assert_allclose(part, other, rtol=1e-10)


@pytest.mark.slow
def test_a_stream_gives_what_its_rows_give(x64):
    model, data = linear(1.0, tb.likelihoods.Gaussian(0.3)), tb.Data(X, Y)
    batches = tb.Data.from_batches(lambda epoch: [(X[:10], Y[:10]), (X[10:], Y[10:])], num=20)
    one, two = layer(model, data), layer(model, batches, weights=layer(model, data).params.weights)
    np.testing.assert_allclose(one.solved.mean, two.solved.mean, rtol=1e-10)


@pytest.mark.slow
def test_outputs_have_noise_and_priors_of_their_own(x64):
    """Two outputs with different noise: each is what it would be alone."""
    model = linear(1.0, tb.likelihoods.Gaussian(np.array([0.2, 0.7])), (4,))
    both = layer(model, tb.Data(X, Y))
    phi, predictive = phi_of(both, X), both.predict(X)
    assert both.solved.roots.shape == (2, 5, 5)
    log_prob, log_evidence = 0.0, 0.0
    for j, sigma in enumerate((0.2, 0.7)):
        covariance = np.linalg.inv(phi.T @ phi / sigma**2 + np.eye(5))
        mean = phi @ covariance @ phi.T @ Y[:, j] / sigma**2
        variance = np.sum(phi @ covariance * phi, axis=1)
        np.testing.assert_allclose(predictive.mean[:, j], mean, rtol=1e-9)
        np.testing.assert_allclose(predictive.epistemic[:, j], variance, rtol=1e-9)
        log_prob += stats.norm(mean, np.sqrt(variance + sigma**2)).logpdf(Y[:, j])
        log_evidence += stats.multivariate_normal.logpdf(Y[:, j], None, sigma**2 * np.eye(20) + phi @ phi.T)
    np.testing.assert_allclose(predictive.log_prob(Y), log_prob, rtol=1e-9)
    np.testing.assert_allclose(both.log_evidence, log_evidence, rtol=1e-9)


@pytest.mark.slow
def test_noise_and_scale_reach_the_optimum_of_a_grid():
    """To 1 %, in the precision of every day: log evidence plus log priors on a grid in NumPy."""
    exact = PROBLEMS["linear_unknown"]()
    posterior = layer(exact.model, exact.data)
    x, y = np.asarray(exact.data.x, np.float64), np.asarray(exact.data.y, np.float64)[:, 0]
    phi = np.column_stack([x, np.ones(len(x))])
    sigmas, taus = np.exp(np.linspace(-1.2, 0.2, 281)), np.exp(np.linspace(-1.5, 0.8, 461))
    kernel = phi @ phi.T
    values, vectors = np.linalg.eigh(kernel)
    spread = sigmas[:, None, None] ** 2 + taus[None, :, None] ** 2 * np.maximum(values, 0.0)
    log_p = -0.5 * (np.log(2 * np.pi * spread) + (vectors.T @ y) ** 2 / spread).sum(-1)
    log_p += stats.gamma(2, scale=0.5).logpdf(sigmas)[:, None] + stats.halfnorm(scale=2).logpdf(taus)[None]
    best = np.unravel_index(log_p.argmax(), log_p.shape)
    np.testing.assert_allclose(np.sqrt(posterior.noise[0]), sigmas[best[0]], rtol=0.01)
    np.testing.assert_allclose(posterior.model.prior.values(posterior.params.scales)[0], taus[best[1]], rtol=0.01)
    assert "noise and prior scales" in posterior.notes[-1]


@pytest.mark.slow
@pytest.mark.parametrize("num", [1, 2], ids=["shared noise", "noise an output"])
@pytest.mark.parametrize("family", [tb.conjugate.Normal(), NIG], ids=["normal", "inverse-gamma"])
def test_the_gradient_of_the_evidence_is_its_derivative(family, num, x64):
    sums = Moments.of(X, Y, np.linspace(0.5, 2.0, len(X)))
    found = evidence.Beliefs(*map(jnp.asarray, (ROWS.normal(size=(3, 2)), ROWS.normal(size=num), 0.0)))
    _, gradient = evidence._objective(family, sums, found)
    for name, where in (("log_variances", (1, 0)), ("log_variances", (2, 1)), ("log_noise", (num - 1,))):
        moved = [found._replace(**{name: getattr(found, name).at[where].add(step)}) for step in (1e-5, -1e-5)]
        up, down = (evidence._objective(family, sums, one)[0] for one in moved)
        np.testing.assert_allclose(getattr(gradient, name)[where], (up - down) / 2e-5, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_scales_of_hidden_layers_stay_where_they_are():
    """The evidence of the last layer does not know them; the network's hidden weights do not move either."""
    model = linear((dist.HalfNormal(1.0), dist.HalfNormal(1.0)), tb.likelihoods.Gaussian(0.3), (4,))
    data = tb.Data(X, Y)
    bound, _ = model.bind(data)
    weights = jax.jit(bound.network.init)(jax.random.key(3), data.x)
    posterior = layer(model, data, weights=weights)
    median = bound.prior.median_scales(weights, bound.network.layout(weights))
    np.testing.assert_array_equal(posterior.params.scales[0], median[0])
    assert abs(float(posterior.params.scales[1] - median[1])) > 1e-3
    found = posterior.model.weights(posterior.params)["layers"][0]
    np.testing.assert_allclose(found["weight"], weights["layers"][0]["weight"], rtol=1e-6)


@pytest.fixture(scope="module")
def trained():
    model = linear(dist.HalfNormal(1.0), UNKNOWN, (4,))
    return tb.NeuralLinear(tb.MAP(train=tb.Train(30))).fit(model, table(24), key=KEY, progress=False)


@pytest.mark.slow
def test_trained_features_keep_the_noise_that_was_measured_on_held_out_rows(trained):
    point = tb.MAP(train=tb.Train(30))
    model = linear(dist.HalfNormal(1.0), UNKNOWN, (4,))
    found = point.fit(model, table(24), key=KEY, progress=False)
    np.testing.assert_allclose(trained.params.noise[0], found.params.noise[0], rtol=1e-6)
    assert any("held-out rows" in note for note in trained.notes)
    assert trained.notes[-1].startswith("Given the features, unknown prior scales of the last layer")


@pytest.mark.slow
def test_a_compiled_answer_is_that_of_predict(trained):
    x = np.asarray(table(7).x)
    found, predictive = trained.compile(x.shape)(x), trained.predict(x)
    np.testing.assert_allclose(found.expected, predictive.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.aleatoric, predictive.aleatoric, rtol=1e-5)
    np.testing.assert_allclose(found.epistemic, predictive.epistemic, rtol=1e-4)


@pytest.mark.slow
def test_a_draw_is_one_network_and_predictions_need_no_number_of_them(trained):
    draw = jax.tree.map(lambda leaf: leaf[0], trained.sample(KEY, 1))
    assert trained.model.outputs(draw, table(7).x).shape == (7, 1)
    assert trained.predict(table(7).x).functions.shape == (100, 7, 1)
    with pytest.raises(tb.InputError, match="closed form"):
        trained.predict(table(7).x, num=10)


@pytest.mark.slow
def test_it_survives_saving_and_pickling_and_goes_on_learning(trained, tmp_path):
    trained.save(tmp_path)
    for back in (tb.load(tmp_path), pickle.loads(pickle.dumps(trained))):
        assert equal(back, trained)
        assert equal(back.update(table(5)).log_evidence, trained.update(table(5)).log_evidence)


class Nested(eqx.Module):
    """An Equinox network of one tanh layer, followed by what it is given."""

    hidden: eqx.nn.Linear
    last: eqx.nn.Linear
    after: object = eqx.field(static=True)

    def __init__(self, key, after=lambda y: y):
        self.hidden, self.last = eqx.nn.Linear(3, 4, key=key), eqx.nn.Linear(4, 2, key=key)
        self.after = after

    def __call__(self, x):
        return self.after(self.last(jnp.tanh(self.hidden(x))))


class Skipping(linen.Module):
    """A Flax network that adds some of its inputs to the last layer's outputs."""

    @linen.compact
    def __call__(self, x):
        return linen.Dense(2)(jnp.tanh(linen.Dense(4)(x))) + 0.5 * x[:, :2]


@pytest.mark.slow
@pytest.mark.parametrize("library", ["equinox", "flax"])
def test_networks_of_other_libraries_have_a_last_layer_too(library):
    """What is added and does not depend on the last layer is part of every prediction."""
    flax = library == "flax"
    network = tb.networks.from_flax(Skipping(), X[:1]) if flax else tb.networks.from_equinox(Nested(KEY))
    posterior = layer(tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3)), tb.Data(X, Y))
    leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(posterior.params.weights)]
    (bias,) = [leaf for leaf in leaves if leaf.shape == (4,)]
    (matrix,) = [leaf if flax else leaf.T for leaf in leaves if sorted(leaf.shape) == [3, 4]]
    phi = np.column_stack([np.tanh(X @ matrix + bias), np.ones(len(X))])
    elsewhere = 0.5 * X[:, :2] * flax
    mean = elsewhere + phi @ np.linalg.solve(phi.T @ phi + 0.09 * np.eye(5), phi.T @ (Y - elsewhere))
    np.testing.assert_allclose(posterior.compile(X.shape)(X).expected, mean, atol=1e-4)


def test_what_has_no_closed_form_is_refused_before_anything_is_trained():
    data, method = tb.Data(X, Y), tb.NeuralLinear()

    def refuse(model, sentence, method=method):
        with pytest.raises(tb.InputError, match=sentence):
            method.fit(model, data, key=KEY)

    network, prior, known = tb.networks.MLP((4,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3)
    refuse(tb.Model(network, prior, tb.likelihoods.Laplace(1.0)), r"Gaussian likelihood.*LastLayer\(\)")
    refuse(tb.Model(network, tb.priors.StudentT(3.0), known), "independent normal weights in the last layer")
    refuse(tb.Model(network, tb.priors.MatrixNormal(), known), "independent normal weights in the last layer")
    for after in (jax.nn.relu, lambda y: jnp.clip(y, -10.0, 10.0)):
        bent = tb.networks.from_equinox(Nested(KEY, after))
        refuse(tb.Model(bent, prior, known), "outputs are its last layer's")
    exact = tb.NeuralLinear(family=NIG)
    refuse(tb.Model(network, prior, known), "unknown noise", exact)
    refuse(tb.Model(network, prior, tb.likelihoods.Gaussian(dist.Uniform(0.1, 1.0))), "all positive numbers", exact)
    refuse(tb.Model(network, prior, known), "init=", tb.NeuralLinear(None))
    with pytest.raises(tb.InputError, match=r"family= as a Family, such as Normal\(\)"):
        tb.NeuralLinear(family="normal")
    with pytest.raises(tb.InputError, match="above 0"):
        tb.conjugate.NormalInverseGamma(0.0, 1.0)


def test_a_covariance_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr("tunbridge.core.memory.available", lambda: 100)
    with pytest.raises(tb.InputError, match="4 features, which takes"):
        layer(linear(), tb.Data(X, Y))


def test_more_rows_must_be_rows_of_the_model():
    known = layer(linear(), tb.Data(X, Y[:, 0]))
    with pytest.raises(tb.InputError, match="as the model was trained on"):
        known.update(tb.Data(np.zeros((2, 4)), np.zeros(2)))
    with pytest.raises(tb.InputError, match="outputs"):
        known.update(tb.Data(np.zeros((2, 3)), np.zeros((2, 2))))
    with pytest.raises(tb.InputError, match=r"tb\.Data"):
        known.update(np.zeros((2, 3)))


@pytest.mark.slow
def test_chains_over_the_last_layer_find_the_same_posterior():
    """NUTS on fixed features: means within 5 Monte Carlo errors, some 0.08 posterior sd; sd within 10 %."""
    posterior = layer(linear(1.0, tb.likelihoods.Gaussian(0.3), (4,)), table(40))
    phi = phi_of(posterior, table(40).x)[:, :-1]
    chains = tb.NUTS().fit(
        linear(1.0, tb.likelihoods.Gaussian(0.3)), tb.Data(phi, table(40).y), key=jax.random.key(1), progress=False
    )
    wanted, found = posterior.predict(table(40).x), chains.predict(phi)
    sd = np.sqrt(wanted.epistemic)
    assert float(np.abs((found.mean - wanted.mean) / sd).max()) < 0.08
    assert float(np.abs(found.mean - wanted.mean).mean() / np.abs(wanted.mean).mean()) < 0.01
    np.testing.assert_allclose(np.sqrt(found.epistemic), sd, rtol=0.1)
