"""Methods on problems with known answers, and what they refuse."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import tunbridge as tb
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.inference.vi.spreads import Diagonal

NETWORK = tb.networks.MLP((3,), outputs=1)


def _moments(posterior):
    """Mean and standard deviations of a linear network: two slopes, then the bias."""

    def joined(params):
        layer = params.weights["layers"][0]
        return np.concatenate([np.ravel(layer["weight"]), np.ravel(layer["bias"])])

    return joined(posterior.q.mean), np.sqrt(joined(posterior.q.variance()))


def _truth():
    problem = tb.bench.truth.exact.linear()
    phi = np.column_stack([problem.data.x, np.ones(problem.data.num)])
    precision = phi.T @ phi / 0.5**2 + np.eye(3) / 1.5**2
    covariance = np.linalg.inv(precision)
    return problem, covariance @ phi.T @ np.ravel(problem.data.y) / 0.5**2, covariance, precision


@pytest.mark.parametrize(
    ("method", "exact"),
    [
        (tb.MeanField(), False),
        pytest.param(tb.IVON(), False, marks=pytest.mark.slow),
        pytest.param(tb.BayesByBackprop(), False, marks=pytest.mark.slow),
        pytest.param(tb.FullRank(), True, marks=pytest.mark.slow),
        pytest.param(tb.ADVI(tb.families.Layers(), num_samples=4), True, marks=pytest.mark.slow),
        pytest.param(tb.LowRank(2, num_samples=4), True, marks=pytest.mark.slow),
    ],
    ids=["mean-field", "ivon", "backprop", "full", "layers", "low rank"],
)
def test_a_linear_model_has_its_known_variances(method, exact):
    """Independent weights 1 / Lambda_ii, all others the true ones: means within 0.1 sd, sds within 4 %."""
    problem, mean, covariance, precision = _truth()
    posterior = method.fit(problem.model, problem.data, key=jax.random.key(0))
    sds = np.sqrt(np.diag(covariance) if exact else 1 / np.diag(precision))
    found, spread = _moments(posterior)
    assert np.abs((found - mean) / np.sqrt(np.diag(covariance))).max() < 0.1
    np.testing.assert_allclose(spread, sds, rtol=0.04)


def _backprop_setting():
    data = tb.Data(np.random.default_rng(0).normal(size=(12, 2)), np.random.default_rng(1).normal(size=12))
    prior = tb.priors.TwoNormals(0.25, 1.0, np.exp(-6.0))
    model, rows = tb.Model(NETWORK, prior, tb.likelihoods.Gaussian(0.3)).bind(data)
    weights = jax.tree.map(lambda leaf: leaf.astype(float), NETWORK.init(jax.random.key(0), data.x))
    params = tb.Params(weights)
    sds = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.05), params)
    return model, rows, tb.families.Diagonal().around(jax.random.key(0), params, sds, NETWORK.layout(weights))


def test_the_papers_steps_are_those_of_automatic_differentiation(x64):
    model, rows, q = _backprop_setting()
    target, key, share = tb.Target(model, 12.0), jax.random.key(5), jnp.asarray(0.7)
    value, deltas = jax.jit(tb.BayesByBackprop(num_samples=1).loss_and_gradient)(key, target, q, rows, share)

    def f(q):
        w = q.place(q.noise(key))
        return (share * (q.log_prob(w) - target.log_prior(w)) - target.log_likelihood(w, rows)) / 12.0

    expected, gradients = jax.jit(jax.value_and_grad(f))(q)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for a, b in zip(jax.tree.leaves(deltas), jax.tree.leaves(gradients), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-10)


@pytest.mark.slow
def test_the_step_of_rho_is_not_the_one_without_epsilon(x64):
    """The misprint dL/dw / (1 + exp(-rho)) would be seen."""
    model, rows, q = _backprop_setting()
    target, key = tb.Target(model, 12.0), jax.random.key(5)
    _, deltas = jax.jit(tb.BayesByBackprop(num_samples=1).loss_and_gradient)(key, target, q, rows, jnp.ones(()))
    w = q.place(q.noise(key))
    gradient = jax.jit(jax.grad(lambda w: -(target.log_likelihood(w, rows) + target.log_prior(w)) / 12.0))(w)
    wrong = jax.tree.leaves(gradient)[0] * jax.nn.sigmoid(q.spreads[0].rho)
    assert not np.allclose(deltas.spreads[0].rho, wrong, rtol=1e-2)


@pytest.mark.slow
def test_plain_descent_is_the_papers_update():
    """mu - alpha Delta mu, rho - alpha Delta rho."""
    model, rows, q = _backprop_setting()
    method = tb.BayesByBackprop(optimiser=optax.sgd, step_size=0.01, decay=tb.schedules.Constant(), train=tb.Train(10))
    target, key = tb.Target(model, 12.0), jax.random.key(5)
    state = jax.jit(method.init)(key, target, q.mean, rows, 0)._replace(q=q)
    _, deltas = jax.jit(method.loss_and_gradient)(key, target, q, rows, jnp.ones(()))
    moved, _ = jax.jit(method.step)(key, target, state, rows)
    for new, old, delta in zip(*map(jax.tree.leaves, (moved.q, q, deltas)), strict=True):
        np.testing.assert_allclose(new, old - 0.01 * delta, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_a_likelihood_is_averaged_in_logarithms(x64):
    """The bound has E[log p(y | w)], not log E[p(y | w)]."""
    model, rows, q = _backprop_setting()
    bound = tb.VariationalGaussian(model, jax.random.key(0), q).elbo(rows, num=4000)
    draws = jax.vmap(q.sample)(jax.random.split(jax.random.key(1), 4000))
    values = jax.vmap(lambda w: tb.Target(model, 12.0).log_likelihood(w, rows))(draws)
    assert abs(bound.log_likelihood - float(values.mean())) < 5 * float(values.std()) * (2 / 4000) ** 0.5
    assert float(jax.nn.logsumexp(values) - np.log(4000)) > bound.log_likelihood + 0.1


@pytest.mark.slow
@pytest.mark.optimised
def test_larger_families_have_larger_bounds():
    """Mean-field, low rank, full rank on a network, whose bounds differ by more than their errors."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(60, 1))
    data = tb.Data(x, np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=60))
    model = tb.Model(tb.networks.MLP((8,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    train, point = tb.Train(30_000), tb.MAP().fit(model, data, key=jax.random.key(0))
    bounds = [
        method.fit(model, data, key=jax.random.key(1), init=point).elbo(data, num=4000)
        for method in (tb.MeanField(train=train), tb.LowRank(5, train=train), tb.FullRank(train=train))
    ]
    for small, large in itertools.pairwise(bounds):
        assert large.value > small.value - 4 * (small.error + large.error)
    assert bounds[2].value > bounds[0].value + 1.0


@pytest.mark.slow
def test_patience_stops_where_the_bound_no_longer_rises():
    problem = tb.bench.truth.exact.linear()
    posterior = tb.MeanField(train=tb.Train(10_000, patience=300)).fit(
        problem.model, problem.data, key=jax.random.key(0)
    )
    assert "Stopped after" in posterior.notes[0]
    assert len(posterior.curve["loss"]) < 200


@pytest.mark.slow
def test_any_log_density_with_constraints_is_approximated():
    """A normal mean (exact), and a scale and a share whose posteriors are known."""
    y = jnp.asarray(np.random.default_rng(0).normal(3.0, 2.0, size=50)) * 100.0

    def log_joint(v):
        seen = dist.Normal(v["mu"], 200.0).log_prob(y).sum() + dist.Binomial(20, v["share"]).log_prob(14)
        return seen + dist.Normal(0.0, 1000.0).log_prob(v["mu"]) + dist.Beta(1.0, 1.0).log_prob(v["share"])

    unknowns = {"mu": dist.constraints.real, "share": dist.Beta(1.0, 1.0)}
    q = tb.ADVI(tb.families.Full()).approximate(log_joint, unknowns, key=jax.random.key(0), progress=False)
    draws = q.sample(jax.random.key(1), 20_000)
    precision = 50 / 200.0**2 + 1 / 1000.0**2
    np.testing.assert_allclose(draws["mu"].mean(), float(y.sum()) / 200.0**2 / precision, atol=0.1 * precision**-0.5)
    np.testing.assert_allclose(draws["mu"].std(), precision**-0.5, rtol=0.05)
    exact = dist.Beta(15.0, 7.0)
    np.testing.assert_allclose(draws["share"].mean(), exact.mean, atol=0.01)
    np.testing.assert_allclose(draws["share"].std(), exact.variance**0.5, rtol=0.1)
    assert q.sample(jax.random.key(1), 3)["mu"].shape == (3,)


def test_a_full_covariance_of_a_normal_density_is_exact_by_default():
    """Six unknowns with correlation 0.9; where q is exact the bound has no Monte Carlo error."""
    covariance = 0.9 + 0.1 * np.eye(6)
    precision = jnp.asarray(np.linalg.inv(covariance))

    def log_density(v):
        return -0.5 * v["w"] @ precision @ v["w"]

    q = tb.ADVI(tb.families.Full()).approximate(
        log_density, {"w": (dist.constraints.real, (6,))}, key=jax.random.key(0), progress=False
    )
    draws = q.sample(jax.random.key(1), 20_000)["w"]
    np.testing.assert_allclose(np.cov(draws, rowvar=False), covariance, atol=0.05)
    exact = 0.5 * (6 * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1])
    assert q.error < 0.01
    np.testing.assert_allclose(q.elbo, exact, atol=0.02)


def test_supports_that_q_cannot_cover_are_refused():
    with pytest.raises(tb.InputError, match="continuous support of 'k'"):
        tb.ADVI().approximate(lambda v: v["k"] * 0.0, {"k": dist.Poisson(3.0)}, key=jax.random.key(0))
    with pytest.raises(tb.InputError, match="finite number"):
        tb.ADVI().approximate(
            lambda v: jnp.log(-1.0 - v["x"] ** 2), {"x": dist.constraints.real}, key=jax.random.key(0)
        )
    positive = tb.priors.LogDensity(
        lambda weights: sum(jnp.sum(jnp.where(w > 0, -w, -jnp.inf)) for w in jax.tree.leaves(weights)),
        lambda key, like: jax.tree.map(jnp.ones_like, like),
    )
    problem = tb.bench.truth.exact.linear()
    model = tb.Model(tb.networks.MLP(()), positive, tb.likelihoods.Gaussian(0.5))
    with pytest.raises(tb.InputError, match="whole real line"):
        tb.MeanField().fit(model, problem.data, key=jax.random.key(0))


@pytest.mark.slow
def test_a_bound_that_is_not_finite_stops_the_run():
    problem = tb.bench.truth.exact.linear()
    wild = tb.MeanField(optimiser=optax.sgd, step_size=1e30, decay=tb.schedules.Constant(), train=tb.Train(50))
    with pytest.raises(tb.NumericalError, match="NaN or infinite"):
        wild.fit(problem.model, problem.data, key=jax.random.key(0))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_samples": 0}, "num_samples"),
        ({"step_size": 0.0}, "step size"),
        ({"point": "mode"}, "point="),
        ({"initial_sd": -1.0}, "initial_sd"),
        ({"decay": 0.5}, "decay="),
    ],
)
def test_wrong_settings_are_refused(options, said):
    with pytest.raises(tb.InputError, match=said):
        tb.MeanField(**options)
    with pytest.raises(tb.InputError, match="beta_1"):
        tb.IVON(beta_1=1.0)


def test_a_mean_field_of_a_network_has_twice_as_many_numbers():
    model, _, q = _backprop_setting()
    assert isinstance(q, Gaussian)
    assert all(isinstance(spread, Diagonal) for spread in q.spreads)
    posterior = tb.VariationalGaussian(model, jax.random.key(0), q)
    assert posterior.num_parameters == 2 * sum(leaf.size for leaf in jax.tree.leaves(q.mean))


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_defaults_do_not_depend_on_units(factor):
    """The estimators standardise: NLL less the change of units moves by less than 0.1."""
    data = tb.datasets.diabetes()
    x, y = np.asarray(data.x), np.ravel(data.y)
    nll = []
    for scale in (1.0, factor):
        fitted = tb.BayesianRegressor(method="meanfield", random_state=0).fit(scale * x[:300], scale * y[:300])
        density = fitted.predictive(scale * x[300:]).log_prob(scale * y[300:])
        nll.append(-float(np.mean(density)) - np.log(scale))
    assert abs(nll[0] - nll[1]) < 0.1
