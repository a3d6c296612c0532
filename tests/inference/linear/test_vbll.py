"""The variational last layer: its bound, its exact cases, and what it refuses."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import equal, labelled, table
from tunbridge.inference.linear import bound
from tunbridge.inference.linear.bound import Layer

KEY = jax.random.key(0)
ROWS = np.random.default_rng(0)
X, Y = ROWS.normal(size=(20, 3)), ROWS.normal(size=(20, 2))
"""Rows with two outputs."""
UNKNOWN = tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))
DRAWS = 200_000


def model(likelihood=UNKNOWN, hidden=(4,), prior=1.0):
    return tb.Model(tb.networks.MLP(hidden), tb.priors.Normal(prior), likelihood)


@pytest.mark.parametrize("known", [True, False], ids=["known noise", "unknown noise"])
def test_the_bound_is_the_expected_log_likelihood_of_normal_noise(known):
    """To 5 standard errors of 200,000 draws of outputs and noise."""
    likelihood = tb.likelihoods.Gaussian(0.7) if known else UNKNOWN
    noise, width = ((), ()) if known else ((jnp.asarray(-0.4),), (jnp.asarray(0.3),))
    mean, spread, y = (jnp.asarray(part) for part in (X[:4, :2], np.exp(X[4:8, :2]), Y[:4]))
    found = bound.expected(likelihood, mean, spread, noise, width, y)
    z, z_noise = jax.random.normal(KEY, (DRAWS, 4, 2)), jax.random.normal(jax.random.key(1), (DRAWS,))

    def one(z, score):
        moved = jax.tree.map(lambda u, w: u + score * w, noise, width)
        return likelihood.distribution(mean + jnp.sqrt(spread) * z, moved).log_prob(y)

    drawn = np.asarray(jax.vmap(one)(z, z_noise))
    assert (np.abs(found - drawn.mean(0)) < 5.0 * drawn.std(0) / np.sqrt(DRAWS)).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_the_bound_of_classes_is_below_the_expected_log_likelihood_and_meets_it_without_spread(classes):
    """Expectations by Gauss-Hermite quadrature."""
    likelihood = tb.likelihoods.Bernoulli() if classes == 2 else tb.likelihoods.Categorical(3, temperature=1.5)
    width = 1 if classes == 2 else 3
    mean, spread = jnp.asarray(2.0 * X[:6, :width]), jnp.asarray(np.exp(X[6:12, :width]))
    y = jnp.arange(6) % classes
    scores, weights = np.polynomial.hermite_e.hermegauss(20)
    z = jnp.asarray(np.stack(np.meshgrid(*[scores] * width), -1).reshape(-1, 1, width))
    shares = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * width), -1).reshape(-1, width), axis=1)
    each = jax.jit(jax.vmap(lambda one: likelihood.distribution(mean + jnp.sqrt(spread) * one).log_prob(y)))(z)
    expected = jax.jit(lambda spread: bound.expected(likelihood, mean, spread, (), (), y))
    assert (expected(spread) < shares @ each).all()
    exact = jax.jit(lambda: likelihood.distribution(mean).log_prob(y))()
    np.testing.assert_allclose(expected(0.0 * spread), exact, atol=1e-5)


def test_neither_of_two_labels_is_preferred():
    mean, spread, y = jnp.asarray(X[:, :1]), jnp.asarray(np.exp(X[:, 1:2])), jnp.arange(20) % 2
    one = bound.expected(tb.likelihoods.Bernoulli(), mean, spread, (), (), y)
    two = bound.expected(tb.likelihoods.Bernoulli(), -mean, spread, (), (), 1 - y)
    np.testing.assert_allclose(one, two, rtol=1e-5)


def test_the_divergence_is_the_sum_over_outputs_of_that_of_normals(x64):
    """Not a mean over weights; and the layer begins with the covariance it is told."""
    variances, means = np.exp(X[:3, :2]), X[3:6, :2]
    precision = np.stack([X.T @ X, 3.0 * X.T @ X])

    @jax.jit
    def found(raw):
        begun = Layer.around(jnp.asarray(precision), jnp.asarray(variances), ())
        moved = begun._replace(raw=begun.raw + raw)
        return begun.roots, moved.roots, moved.divergence(jnp.asarray(means), jnp.asarray(variances))

    first, roots, divergence = (np.asarray(part) for part in found(jnp.asarray(X[:9, :2].reshape(2, 3, 3))))
    wanted = 0.0
    for j in range(2):
        begun = np.linalg.inv(precision[j] + np.diag(1.0 / variances[:, j]))
        np.testing.assert_allclose(first[j] @ first[j].T, begun, rtol=1e-8)
        covariance = roots[j] @ roots[j].T
        quadratic = np.sum((np.diag(covariance) + means[:, j] ** 2) / variances[:, j])
        wanted += 0.5 * (quadratic - 3.0 + np.log(variances[:, j]).sum() - np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(divergence, wanted, rtol=1e-10)


def test_without_hidden_layers_it_is_bayesian_linear_regression():
    """Mean and covariance of each output, with noise of its own, to 1e-4 of the posterior standard deviations."""
    made = model(tb.likelihoods.Gaussian(np.array([0.3, 0.8])), ())
    posterior = tb.VBLL().fit(made, tb.Data(X, Y), key=KEY, progress=False)
    phi = np.column_stack([X, np.ones(20)])
    (last,) = posterior.params.weights["layers"]
    found = np.vstack([last["weight"], last["bias"]])
    for j, sigma in enumerate((0.3, 0.8)):
        covariance = np.linalg.inv(phi.T @ phi / sigma**2 + np.eye(4))
        mean, sd = covariance @ phi.T @ Y[:, j] / sigma**2, np.sqrt(np.diag(covariance))
        np.testing.assert_allclose(found[:, j] / sd, mean / sd, atol=1e-4)
        scaled = posterior.roots[j] @ posterior.roots[j].T / np.outer(sd, sd)
        np.testing.assert_allclose(scaled, covariance / np.outer(sd, sd), atol=1e-4)


@pytest.mark.slow
def test_batches_count_for_the_whole_data_and_the_divergence_is_whole(x64):
    """The objective of all rows is the mean of those of its halves."""
    bound_model, rows = model(tb.likelihoods.Gaussian(0.3)).bind(tb.Data(X, Y))
    target, method = tb.Target(bound_model, 20.0), tb.VBLL()
    params = method.start(KEY, target, rows)
    layer = method.extra(target, params, rows)._replace(base=0.1 * jnp.broadcast_to(jnp.eye(5), (2, 5, 5)))
    halves = [tb.Data(rows.x[own], rows.y[own]) for own in (slice(0, 10), slice(10, 20))]
    objective = jax.jit(method.objective)
    whole, *parts = (objective(KEY, target, params, layer, data) for data in (rows, *halves))
    np.testing.assert_allclose(whole, np.mean(parts), rtol=1e-10)
    wider = layer._replace(log_det=layer.log_det - 1.0)
    np.testing.assert_allclose(objective(KEY, target, params, wider, halves[0]), parts[0] - 2.0, rtol=1e-10)


@pytest.mark.slow
def test_noise_is_as_wide_as_rows_leave_its_logarithm():
    """1 / sqrt(2 n) where n is large; the prior alone where there are no rows."""
    at = (jnp.asarray(0.0),)
    np.testing.assert_allclose(bound.noise_width(UNKNOWN, at, 1e6, 1)[0], 1.0 / np.sqrt(2e6), rtol=1e-4)
    np.testing.assert_allclose(bound.noise_width(UNKNOWN, at, 0.0, 1)[0], 1.0, rtol=1e-5)  # u / 2 - exp(u)


@pytest.fixture(scope="module")
def trained():
    return tb.VBLL(train=tb.Train(30)).fit(model(prior=dist.HalfNormal(1.0)), table(24), key=KEY, progress=False)


@pytest.mark.slow
def test_unknown_noise_has_a_spread_and_unknown_scales_are_said_to_be_held(trained):
    notes = " ".join(trained.notes)
    assert "held at the medians" in notes
    assert "held-out rows" in notes
    u, width = float(trained.params.noise[0]), float(trained.width[0])
    np.testing.assert_allclose(trained.predict(table(7).x).aleatoric, np.exp(2.0 * u + 2.0 * width**2), rtol=1e-4)


@pytest.mark.slow
def test_a_draw_is_one_network_and_predictions_need_no_number_of_them(trained):
    assert trained.predict(table(7).x).functions.shape == (100, 7, 1)
    assert equal(trained.one(), trained.params)
    with pytest.raises(tb.InputError, match="closed form"):
        trained.predict(table(7).x, num=10)


@pytest.mark.slow
def test_it_survives_saving_and_pickling(trained, tmp_path):
    trained.save(tmp_path)
    for back in (tb.load(tmp_path), pickle.loads(pickle.dumps(trained))):
        assert equal(back, trained)


def same_when_compiled(posterior, x):
    found, predictive = posterior.compile(x.shape)(x), posterior.predict(x)
    numbers = isinstance(posterior.model.likelihood, tb.likelihoods.Gaussian)
    np.testing.assert_allclose(found.expected, predictive.mean if numbers else predictive.probs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.aleatoric, predictive.aleatoric, rtol=1e-5)
    np.testing.assert_allclose(found.epistemic, predictive.epistemic, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_draws_of_numbers_have_the_moments_of_the_prediction(trained):
    """4,000 of them: means to 5 standard errors, spreads to 10 %."""
    x = np.asarray(table(7).x)
    same_when_compiled(trained, x)
    drawn, predictive = trained.sample(KEY, 4000), trained.predict(x)
    outputs = np.asarray(jax.vmap(trained.model.outputs, (0, None))(drawn, jnp.asarray(x)))
    sd = np.sqrt(predictive.epistemic)
    np.testing.assert_allclose(outputs.std(0), sd, rtol=0.1)
    assert (np.abs(outputs.mean(0) - predictive.mean) < 5.0 * sd / np.sqrt(4000)).all()
    np.testing.assert_allclose(drawn.noise[0].std(), trained.width[0], rtol=0.1)


@pytest.mark.slow
def test_the_probabilities_of_classes_are_those_of_drawn_networks(tmp_path):
    """Of 4,000 draws, to 0.02."""
    posterior = tb.VBLL(train=tb.Train(30)).fit(model(tb.likelihoods.Categorical()), labelled(24), key=KEY)
    x = np.asarray(labelled(7).x)
    same_when_compiled(posterior, x)
    outputs = jax.vmap(posterior.model.outputs, (0, None))(posterior.sample(KEY, 4000), jnp.asarray(x))
    np.testing.assert_allclose(posterior.predict(x).probs, jax.nn.softmax(outputs).mean(0), atol=0.02)
    posterior.save(tmp_path)
    assert equal(tb.load(tmp_path), posterior)


@pytest.mark.slow
def test_a_run_that_ends_before_the_noise_is_measured_says_that_nothing_spreads():
    made, method = model(prior=dist.HalfNormal(1.0)), tb.VBLL(train=tb.Train(30))
    stop = [lambda event: event.step >= 9]
    posterior = method.fit(made, table(24), key=KEY, callbacks=stop, progress=False)
    assert "point estimate" in posterior.notes[-1]
    assert float(posterior.predict(table(7).x).epistemic.max()) == 0.0


@pytest.mark.slow
def test_what_has_no_such_bound_is_refused_before_anything_is_trained(monkeypatch):
    def refuse(made, data, sentence):
        with pytest.raises(tb.InputError, match=sentence):
            tb.VBLL().fit(made, data, key=KEY)

    data, network, known = tb.Data(X, Y), tb.networks.MLP((4,)), tb.likelihoods.Gaussian(0.3)
    refuse(model(tb.likelihoods.Laplace(1.0)), data, r"Gaussian, Categorical or Bernoulli.*LastLayer\(\)")
    warm = tb.likelihoods.Categorical(temperature=dist.LogNormal(0.0, 1.0))
    refuse(model(warm), labelled(24), "known temperature")
    for prior in (tb.priors.StudentT(3.0), tb.priors.MatrixNormal()):
        refuse(tb.Model(network, prior, known), data, "independent normal weights in the last layer")
    bent = tb.networks.from_functions(
        lambda key, x: {"w": jnp.ones((3, 2))}, lambda weights, x: jnp.tanh(x @ weights["w"])
    )
    refuse(tb.Model(bent, tb.priors.Normal(1.0), known), data, "outputs are its last layer's")
    monkeypatch.setattr("tunbridge.core.memory.available", lambda: 100)
    refuse(model(known), data, "2 of 5 features, which take")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_diabetes_coverage_is_honest_with_unknown_noise(seed):
    """50-50 tanh, weights by fan-in, noise ~ Gamma(1/2, 1), a fifth held out: 0.80 to 0.97, as asked of MAP."""
    train, test = tb.datasets.split(tb.datasets.diabetes(), jax.random.key(seed))
    made = model(hidden=(50, 50), prior=tb.priors.fan_in(1.0))
    (row,) = tb.compare(made, train, test, {"vbll": tb.VBLL()}, baselines=False).rows
    assert 0.80 <= row["90 % coverage"] <= 0.97, (seed, row)


@pytest.mark.slow
@pytest.mark.parametrize(("scale_x", "scale_y"), [(1.0 / 128.0, 128.0), (128.0, 1.0 / 128.0)])
def test_the_estimator_does_not_mind_the_units(scale_x, scale_y):
    """Powers of two: other factors change the last bits of standardised rows, and a fit like another key."""
    data = tb.datasets.diabetes()
    x, y = np.asarray(data.x)[:200], np.asarray(data.y)[:200, 0]
    plain = tb.BayesianRegressor(method="vbll", random_state=0).fit(x, y).predict(x, return_std=True)
    other = tb.BayesianRegressor(method="vbll", random_state=0).fit(scale_x * x, scale_y * y)
    for found, wanted in zip(other.predict(scale_x * x, return_std=True), plain, strict=True):
        np.testing.assert_allclose(found / scale_y, wanted, atol=1e-3 * y.std())


@pytest.mark.slow
@pytest.mark.optimised
def test_digits_are_told_apart():
    """At least 95 % right on a fifth held out; a log score at most 0.05 nats below that of MAP: it was 0.029 below."""
    train, test = tb.datasets.split(tb.datasets.digits(), KEY)
    made = model(tb.likelihoods.Categorical(classes=10), (50,))
    scaled = [tb.Data(np.asarray(data.x) / 16.0, data.y) for data in (train, test)]
    found = {}
    for method in (tb.VBLL(train=tb.Train(2000, 256)), tb.MAP(train=tb.Train(2000, 256))):
        predictive = method.fit(made, scaled[0], key=KEY).predict(scaled[1].x)
        assert np.mean(np.asarray(predictive.mode) == np.asarray(scaled[1].y)) > 0.95
        found[type(method)] = float(np.mean(predictive.log_prob(scaled[1].y)))
    assert found[tb.VBLL] > found[tb.MAP] - 0.05
