import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from sklearn.linear_model import LinearRegression, Ridge

import tunbridge as tb
from toys import equal, labelled, model, table
from tunbridge.core.tree import ravel
from tunbridge.inference.point import holdout


def _linear(prior_scale, noise):
    return tb.Model(tb.networks.MLP(()), tb.priors.Normal(prior_scale), tb.likelihoods.Gaussian(noise))


def _weights(posterior):
    layer = posterior.params.weights["layers"][0]
    return np.concatenate([np.asarray(layer["weight"])[:, 0], np.asarray(layer["bias"])])


def test_map_of_a_linear_model_is_ridge(key, x64):
    """Known noise, the bias penalised too: alpha = sigma^2 / tau^2 on columns (x, 1)."""
    data = table(60, 5)
    columns = np.concatenate([data.x, np.ones((60, 1))], axis=1)
    for tau, sigma in ((1.0, 0.1), (0.3, 2.0), (5.0, 0.5)):
        ridge = Ridge(alpha=sigma**2 / tau**2, fit_intercept=False).fit(columns, np.asarray(data.y)[:, 0])
        posterior = tb.MAP(train=tb.Train(4000)).fit(_linear(tau, sigma), data, key=key)
        np.testing.assert_allclose(_weights(posterior), ridge.coef_, atol=1e-5)


@pytest.mark.slow
def test_a_flat_prior_gives_least_squares_by_any_optimiser(key, x64):
    data = table(60, 5)
    wanted = LinearRegression().fit(data.x, data.y)
    wanted = np.append(wanted.coef_[0], wanted.intercept_)
    flat = _linear(1e6, 1.0)
    for method in (
        tb.MAP(train=tb.Train(4000)),
        tb.MAP(step_size=0.3, optimiser=optax.sgd, train=tb.Train(2000)),
        tb.MAP(step_size=1.0, optimiser=optax.lbfgs, decay=tb.schedules.Constant(), train=tb.Train(50)),
    ):
        np.testing.assert_allclose(_weights(method.fit(flat, data, key=key)), wanted, atol=1e-5)


@pytest.mark.slow
def test_minibatch_sgd_converges_to_least_squares(key):
    data = table(400, 3)
    wanted = LinearRegression().fit(data.x, data.y)
    method = tb.MAP(step_size=0.1, optimiser=optax.sgd, train=tb.Train(4000, batch_size=32))
    posterior = method.fit(_linear(1e3, 1.0), data, key=key)
    np.testing.assert_allclose(_weights(posterior), np.append(wanted.coef_[0], wanted.intercept_), atol=0.01)


@pytest.mark.parametrize("momentum", [None, pytest.param(0.9, marks=pytest.mark.slow)])
def test_map_is_weight_decay_step_by_step(momentum, key, x64):
    """-log joint / N = mean loss + |w|^2 / (2 N tau^2): SGD with decay 1 / (N tau^2) takes the same steps."""
    tau, sigma, step_size, num = 0.7, 0.3, 0.01, 40
    data, made = table(num), model((5,), tb.likelihoods.Gaussian(sigma), tb.priors.Normal(tau))
    optimiser = {None: optax.sgd, 0.9: _sgd_with_momentum}[momentum]
    bound, rows = made.bind(data)
    weights = jax.jit(bound.network.init)(key, rows.x)

    def loss(w):
        return jnp.mean(0.5 * (rows.y - bound.network.apply(w, rows.x)) ** 2) / sigma**2

    @jax.jit
    def step(weights, velocity):
        decayed = jax.tree.map(lambda g, w: g + w / (num * tau**2), jax.grad(loss)(weights), weights)
        velocity = jax.tree.map(lambda v, g: (momentum or 0.0) * v + g, velocity, decayed)
        return jax.tree.map(lambda w, v: w - step_size * v, weights, velocity), velocity

    velocity, path = jax.tree.map(np.zeros_like, weights), []
    for _ in range(25):
        weights, velocity = step(weights, velocity)
        path.append(ravel(weights))
    start = tb.Params(jax.jit(bound.network.init)(key, rows.x))
    for steps in (1, 2, 7, 25):
        method = tb.MAP(step_size, optimiser, tb.schedules.Constant(), tb.Train(steps))
        posterior = method.fit(made, data, key=key, init=start)
        np.testing.assert_allclose(ravel(posterior.params.weights), path[steps - 1], rtol=0, atol=1e-12)


def _sgd_with_momentum(step_size):
    return optax.sgd(step_size, momentum=0.9)


@pytest.mark.slow
def test_layers_can_have_separate_decay(key, x64):
    """The objective is f + lambda_hidden |gamma|^2 + lambda_output |beta|^2 with lambda = 1 / (2 N tau^2)."""
    made = model((4,), tb.likelihoods.Gaussian(1.0), tb.priors.Normal((2.0, 0.5)))
    bound, rows = made.bind(table(30))
    target = tb.Target(bound, 30.0)

    def penalised(params):
        return -(target.log_likelihood(params, rows) + target.log_prior_weights(params)) / 30

    one, two = (tb.Params(jax.jit(bound.network.init)(k, rows.x)) for k in jax.random.split(key))

    def by_hand(params):
        f = 0.5 * jnp.mean((rows.y - bound.outputs(params, rows.x)) ** 2)
        hidden, output = (jnp.sum(ravel(layer) ** 2) for layer in params.weights["layers"])
        return f + hidden / (2 * 30 * 2.0**2) + output / (2 * 30 * 0.5**2)

    assert float(penalised(one) - penalised(two)) == pytest.approx(float(by_hand(one) - by_hand(two)), abs=1e-12)


@pytest.mark.slow
def test_stronger_decay_gives_smaller_weights_and_larger_residuals(key):
    """The L-curve is monotone."""
    data, norms, errors = table(60), [], []
    for tau in (0.1, 0.3, 1.0, 3.0):
        posterior = tb.MAP().fit(model((10,), tb.likelihoods.Gaussian(0.3), tb.priors.Normal(tau)), data, key=key)
        norms.append(float(jnp.sum(ravel(posterior.params.weights) ** 2)))
        errors.append(tb.metrics.rmse(posterior.predict(data.x), data.y))
    assert norms == sorted(norms)
    assert errors == sorted(errors, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_diabetes_coverage_is_honest_with_unknown_noise(seed):
    """50-50 tanh, noise ~ Gamma(1/2, 1), a fifth held out, three keys: MAP and ensemble cover 0.80 to 0.97."""
    made = tb.Model(
        tb.networks.MLP((50, 50)),
        tb.priors.Normal(tb.priors.fan_in(1.0)),
        tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)),
    )
    train, test = tb.datasets.split(tb.datasets.diabetes(), jax.random.key(seed))
    methods = {"map": tb.MAP()} if seed == 0 else {"map": tb.MAP(), "ensemble": tb.Ensemble(tb.MAP(), 5)}
    for row in tb.compare(made, train, test, methods, baselines=False).rows:
        assert 0.80 <= row["90 % coverage"] <= 0.97, (seed, row)


@pytest.mark.slow
def test_noise_is_never_fitted_to_the_rows_the_weights_learn_from(key):
    """A wide net that interpolates pure noise: jointly maximised, sigma would go to 0; held out, it stays near 1."""
    rng = np.random.default_rng(0)
    data = tb.Data(rng.normal(size=(60, 5)), rng.normal(size=60))
    made = model((200,), tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)), tb.priors.Normal(1.0))
    posterior = tb.MAP().fit(made, data, key=key)
    assert 0.6 < float(posterior.model.likelihood.sigma(posterior.params.noise)) < 2.5
    assert any("held-out" in note for note in posterior.notes)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_noise_is_found_whatever_the_units_of_y(scale, key):
    """Four standard errors of a deviation from 400 held-out rows are 14 %; fixed key."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 3))
    data = tb.Data(x, scale * (x[:, 0] + 0.5 * rng.normal(size=2000)))
    made = tb.Model(tb.networks.MLP(()), tb.priors.Normal(100.0), tb.likelihoods.Gaussian(dist.LogNormal(0.0, 10.0)))
    posterior = tb.MAP(step_size=0.01 * max(scale, 1.0)).fit(made, data, key=key)
    assert float(posterior.model.likelihood.sigma(posterior.params.noise)) == pytest.approx(0.5 * scale, rel=0.15)


@pytest.mark.slow
def test_learned_noise_is_the_residual_deviation_of_each_output(key):
    """Two tasks with deviations 10 and 1, as in the multi-task notebook: within 15 %."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1500, 1))
    y = np.concatenate([2 * x + 1 + 10 * rng.normal(size=x.shape), 3 * x + 3 + rng.normal(size=x.shape)], axis=1)
    noise = dist.LogNormal(0.0, 3.0).expand([2])
    made = tb.Model(tb.networks.MLP(()), tb.priors.Normal(10.0), tb.likelihoods.Gaussian(noise))
    posterior = tb.MAP().fit(made, tb.Data(x, y), key=key)
    sigma = np.asarray(posterior.model.likelihood.sigma(posterior.params.noise))
    np.testing.assert_allclose(sigma, [10.0, 1.0], rtol=0.15)


@pytest.mark.slow
def test_unknown_prior_scales_are_held_at_the_median_and_said_so(key):
    posterior = tb.MAP(train=tb.Train(50)).fit(model(prior=tb.priors.Normal(dist.HalfNormal(1.0))), table(), key=key)
    assert float(jnp.exp(posterior.params.scales[0])) == pytest.approx(0.6745, rel=1e-3)
    assert any("held at the medians" in note for note in posterior.notes)


def test_known_numbers_are_never_changed(key):
    posterior = tb.MAP(train=tb.Train(50)).fit(model(), table(), key=key)
    assert posterior.params.scales == posterior.params.noise == ()
    assert float(posterior.model.likelihood.sigma()) == pytest.approx(0.1)
    assert posterior.notes == ()


@pytest.mark.slow
def test_a_unknown_noise_fit_in_minibatches_agrees_with_the_full_one(key):
    data = table(600, noise=0.5)
    made = model((10,), tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)))
    sigmas = []
    for batch_size in (None, 64):
        posterior = tb.MAP(train=tb.Train(3000, batch_size)).fit(made, data, key=key)
        sigmas.append(float(posterior.model.likelihood.sigma(posterior.params.noise)))
    np.testing.assert_allclose(sigmas, 0.5, rtol=0.2)


@pytest.mark.slow
@pytest.mark.optimised
def test_heteroscedastic_noise_is_recovered(key):
    data = tb.datasets.funnel(key, 3000)
    made = tb.Model(tb.networks.MLP((50,)), tb.priors.Normal(1.0), tb.likelihoods.Heteroscedastic())
    posterior = tb.MAP(train=tb.Train(3000)).fit(made, data, key=key)
    x = np.linspace(-1.9, 1.9, 100)[:, None]
    found = np.sqrt(np.asarray(posterior.predict(x).aleatoric))[:, 0]
    truth = np.asarray(tb.datasets.toy.funnel_scale(x[:, 0]))
    assert np.corrcoef(found, truth)[0, 1] > 0.95
    np.testing.assert_allclose(found, truth, rtol=0.15)  # 0.08 at most for three keys


@pytest.mark.slow
def test_patience_ends_a_run_that_no_longer_improves(key):
    method = tb.MAP(train=tb.Train(200_000, patience=200))
    posterior = method.fit(model((3,), labelled_likelihood()), labelled(), key=key)
    assert any(note.startswith("Stopped after") for note in posterior.notes)
    assert equal(method.fit(model((3,), labelled_likelihood()), labelled(), key=key).params, posterior.params)


def labelled_likelihood():
    return tb.likelihoods.Categorical()


def test_init_is_where_it_starts(key):
    bound, rows = model().bind(table())
    start = jax.jit(bound.sample_params)(key, rows.x)
    posterior = tb.MAP(step_size=1e-12, train=tb.Train(1)).fit(model(), table(), key=key, init=start)
    np.testing.assert_allclose(ravel(posterior.params.weights), ravel(start.weights), atol=1e-6)


def test_the_curve_falls(key):
    posterior = tb.MAP().fit(model(), table(), key=key)
    assert posterior.curve["loss"][-1] < posterior.curve["loss"][0]
    assert len(posterior.curve["loss"]) == 200


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tb.MAP(step_size=0.0), "a step size above 0"),
        (lambda: tb.MAP(step_size=float("nan")), "step_size= as a real number"),
        (lambda: tb.MAP(optimiser=optax.adam(1e-3)), r"Pass optax\.adam, not optax\.adam\(1e-3\)"),
    ],
)
def test_bad_settings_are_refused(make, said):
    with pytest.raises(tb.InputError, match=said):
        make()


@pytest.mark.slow
def test_held_out_rows_are_a_fifth_and_follow_the_row_not_its_place(key):
    data = table(500)
    marks, all_rows = holdout.mark(holdout.salt(key, data), data), jnp.ones(500, bool)
    cut = holdout.threshold(marks, all_rows, 0.2, True)
    assert int(jnp.sum(marks <= cut)) == 100
    order = jax.random.permutation(key, 500)
    shuffled = holdout.mark(holdout.salt(key, data), jax.tree.map(lambda leaf: leaf[order], data))
    np.testing.assert_array_equal(shuffled, marks[order])
    other = holdout.mark(holdout.salt(jax.random.key(0), data), data)
    both = jnp.mean((marks <= cut) & (other <= holdout.threshold(other, all_rows, 0.2, True)))
    assert abs(float(both) - 0.04) < 4 * (0.04 * 0.96 / 500) ** 0.5
    assert holdout.threshold(marks[:1], all_rows[:1], 0.2, True) == marks[0]
    assert holdout.threshold(marks, all_rows, 0.2, False) == int(0.2 * (2**32 - 1))
    few = jnp.arange(500) < 10  # of ten rows that count, two
    assert int(jnp.sum((marks <= holdout.threshold(marks, few, 0.2, True)) & few)) == 2
    copies = jnp.arange(500) % 4  # a weight is so many copies
    assert holdout.threshold(marks, copies, 0.2, True) == holdout.threshold(
        jnp.repeat(marks, copies), jnp.ones(sum(copies)), 0.2, True
    )


def test_held_out_marks_are_uniform(key):
    """Kolmogorov-Smirnov at level 1e-3 on rows that differ in one number only, fixed key."""
    from scipy.stats import kstest

    data = tb.Data(np.arange(4000.0)[:, None], np.zeros(4000))
    assert kstest(np.asarray(holdout.mark(holdout.salt(key, data), data), float) / 2**32, "uniform").pvalue > 1e-3


@pytest.mark.slow
def test_rows_without_weight_do_not_decide_the_noise():
    """54 of 60 rows weigh nothing: the noise still comes from rows that count, and does not collapse."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    data = tb.Data(x, x[:, 0] + 0.5 * rng.normal(size=60), np.where(np.arange(60) < 6, 1.0, 0.0))
    made = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)))
    for seed in range(4):
        posterior = tb.MAP(train=tb.Train(500)).fit(made, data, key=jax.random.key(seed))
        assert float(posterior.model.likelihood.sigma(posterior.params.noise)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("step_size", [0.03, 0.003])
def test_noise_does_not_depend_on_the_step_size(step_size):
    """On the curve, true noise 0.1: every member of six between 0.05 and 0.25."""
    made = model(
        (50, 50), tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)), tb.priors.Normal((3.0, 1.0, tb.priors.fan_in(1.0)))
    )
    posterior = tb.Ensemble(tb.MAP(step_size), 6).fit(
        made, tb.datasets.curve(jax.random.key(0), 60), key=jax.random.key(0)
    )
    sigmas = [float(m.model.likelihood.sigma(m.params.noise)) for m in posterior.members]
    assert 0.05 < min(sigmas) < max(sigmas) < 0.25, sigmas


def test_a_result_that_is_not_finite_is_not_returned(key):
    method = tb.MAP(1e38, optax.sgd, tb.schedules.Constant(), tb.Train(1))
    with pytest.raises(tb.NumericalError, match="The state became NaN or infinite"):
        method.fit(model(likelihood=tb.likelihoods.Gaussian(1e-3)), table(), key=key)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"init": {"w": 1.0}}, "init= as tb.Params"),
        ({"init": tb.Params({"layers": []})}, "init= of shapes"),
        ({"key": 0}, "key= as a key, such as jax.random.key"),
        ({"callbacks": print}, "callbacks= as a list"),
    ],
)
def test_a_wrong_call_is_refused_at_the_door(options, said):
    with pytest.raises(tb.InputError, match=said):
        tb.MAP().fit(model(), table(), **{"key": jax.random.key(0), **options})


def test_members_do_not_start_together(key):
    bound, rows = model().bind(table())
    with pytest.raises(tb.InputError, match="members that start apart"):
        tb.Ensemble().fit(model(), table(), key=key, init=tb.Params(jax.jit(bound.network.init)(key, rows.x)))


@pytest.mark.slow
def test_an_init_may_leave_unknowns_out(key):
    made = model(likelihood=tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)), prior=tb.priors.Normal(dist.HalfNormal(1.0)))
    bound, rows = made.bind(table())
    posterior = tb.MAP(train=tb.Train(20)).fit(
        made, table(), key=key, init=tb.Params(jax.jit(bound.network.init)(key, rows.x))
    )
    assert len(posterior.params.noise) == len(posterior.params.scales) == 1


@pytest.mark.slow
def test_a_first_batch_that_holds_no_row_out_leaves_noise_finite(key):
    """With batches of 2 of 12 rows many first batches have none: every key must start."""
    rows = table(12)
    noisy = model(likelihood=tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)))
    method = tb.Ensemble(tb.MAP(train=tb.Train(2, batch_size=2)), 8)
    posterior = method.fit(noisy, rows, key=key, progress=False)
    assert np.isfinite([float(member.params.noise[0]) for member in posterior.members]).all()
