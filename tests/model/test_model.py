import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import tunbridge as tb
from toys import labelled, model, table
from tunbridge.core.tree import ravel
from tunbridge.runtime.batches import Minibatches


def test_log_joint_is_log_likelihood_plus_the_prior_of_every_layer(key, x64):
    data = table()
    made = model(
        (5, 4), prior=tb.priors.Normal((1.0, 2.0, 0.5)), likelihood=tb.likelihoods.Gaussian(dist.Gamma(2.0, 2.0))
    )
    bound, rows = made.bind(data)
    params = jax.jit(bound.sample_params)(key, rows.x)
    target = tb.Target(bound, float(rows.num))
    sigma = float(jnp.exp(params.noise[0]))
    f = np.asarray(jax.jit(bound.outputs)(params, rows.x))
    likelihood = stats.norm(f, sigma).logpdf(np.asarray(rows.y)).sum()
    layers = [
        stats.norm(0, s).logpdf(np.asarray(ravel(w))).sum()
        for s, w in zip((1.0, 2.0, 0.5), params.weights["layers"], strict=True)
    ]
    noise = stats.gamma(2, scale=0.5).logpdf(sigma) + np.log(sigma)
    found = jax.jit(target.log_density)(params, rows)
    assert float(found) == pytest.approx(likelihood + sum(layers) + noise, abs=1e-6)


def test_batches_of_an_epoch_average_to_the_whole_data(key, x64):
    bound, rows = model().bind(table(40))
    params, target = jax.jit(bound.sample_params)(key, rows.x), tb.Target(bound, 40.0)
    source = Minibatches(rows, 8)
    cursor = source.start(key, jnp.int32(0))
    values, gradients = [], []

    @jax.jit
    def follow(cursor, t):
        cursor = source.follow(key, cursor, t)
        return cursor, *jax.value_and_grad(target.log_likelihood)(params, source.batch(cursor, t))

    for t in range(5):
        cursor, value, gradient = follow(cursor, jnp.int32(t))
        values.append(value)
        gradients.append(ravel(gradient))
    whole, gradient = jax.jit(jax.value_and_grad(target.log_likelihood))(params, rows)
    assert float(np.mean(values)) == pytest.approx(float(whole), rel=1e-10)
    np.testing.assert_allclose(np.mean(gradients, axis=0), ravel(gradient), rtol=1e-8, atol=1e-8)


def test_temperature_divides_likelihood_and_prior(key):
    """Where all scales and the noise are known; `test_temperature.py` has the others."""
    bound, rows = model().bind(table())
    params = jax.jit(bound.sample_params)(key, rows.x)
    cold, warm = (
        float(jax.jit(tb.Target(bound, 40.0, temperature).log_density)(params, rows)) for temperature in (0.5, 1.0)
    )
    assert cold == pytest.approx(2 * warm, rel=1e-6)


def test_a_row_of_weight_two_counts_as_two_rows(key, x64):
    data = table(10)
    twice = tb.Data(data.x, data.y, np.array([2.0] + [1.0] * 9))
    copied = tb.Data(jnp.concatenate([data.x, data.x[:1]]), jnp.concatenate([data.y, data.y[:1]]))
    bound, rows = model().bind(data)
    params = jax.jit(bound.sample_params)(key, rows.x)
    values = [float(tb.Target(bound, float(d.num)).log_likelihood(params, d)) for d in (twice, copied)]
    assert values[0] == pytest.approx(values[1], rel=1e-10)


def test_the_prior_predictive_has_the_models_shapes(key):
    bound, rows = model(likelihood=tb.likelihoods.Categorical()).bind(labelled())
    params, y = bound.sample(key, rows.x)
    assert y.shape == rows.y.shape
    assert params.noise == ()
    assert jax.tree.structure(params.weights) == jax.tree.structure(jax.jit(bound.network.init)(key, rows.x))


def test_the_prior_predictive_has_the_models_moments(key):
    """Linear model: var y = tau^2 (|x|^2 + 1) + sigma^2. Four standard errors with a fixed key: false alarms 6e-5."""
    made = tb.Model(tb.networks.MLP((), outputs=1), tb.priors.Normal(1.5), tb.likelihoods.Gaussian(0.5))
    x = jnp.array([[1.0, -2.0]])
    _, y = jax.vmap(lambda k: made.sample(k, x))(jax.random.split(key, 20_000))
    wanted = 1.5**2 * 6 + 0.25
    assert abs(float(jnp.var(y)) - wanted) < 4 * wanted * (2 / 20_000) ** 0.5


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: tb.Model(3, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(1.0)), "a network with the methods"),
        (lambda: tb.Model(tb.networks.MLP(()), 1.0, tb.likelihoods.Gaussian(1.0)), "a prior with the methods"),
        (lambda: tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), 0.1), "a likelihood with the methods"),
    ],
)
def test_parts_in_the_wrong_place_are_refused(build, said):
    with pytest.raises(tb.InputError, match=said):
        build()


def test_a_network_with_other_outputs_is_refused(key):
    made = tb.Model(tb.networks.MLP((3,), outputs=2), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(1.0))
    with pytest.raises(tb.InputError, match=r"outputs of shape \(40, 1\) for Gaussian; got shape \(40, 2\)"):
        tb.MAP().fit(made, table(), key=key)
    flat = tb.networks.from_functions(lambda k, x: {"w": jnp.zeros(3)}, lambda w, x: x @ w["w"])
    made = tb.Model(flat, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(1.0))
    with pytest.raises(tb.InputError, match=r"outputs of shape \(40, 1\) for Gaussian; got shape \(40,\)"):
        tb.MAP().fit(made, table(), key=key)


def test_images_into_an_mlp_and_a_sample_without_outputs_are_refused(key):
    with pytest.raises(tb.InputError, match="for an MLP"):
        tb.MAP().fit(model(), tb.Data(np.zeros((4, 2, 2)), np.zeros(4)), key=key)
    with pytest.raises(tb.InputError, match="knows its outputs"):
        model().sample(key, jnp.zeros((3, 2)))


def test_a_bound_model_knows_its_inputs_and_binding_again_changes_nothing(key):
    bound, rows = model().bind(table())
    again, _ = bound.bind(rows)
    assert model().inputs is None
    assert bound.inputs == jax.ShapeDtypeStruct((3,), jnp.float32)
    assert again == bound
    assert hash(bound.inputs) == hash(again.inputs)


def test_rows_of_another_shape_are_refused_even_where_the_network_would_take_them(key):
    mean = tb.networks.from_functions(lambda k, x: {"b": jnp.zeros(())}, lambda w, x: x.mean(1, keepdims=True) + w["b"])
    made = tb.Model(mean, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(1.0))
    posterior = tb.MAP(train=tb.Train(2)).fit(made, table(), key=key)
    with pytest.raises(
        tb.InputError, match=r"x of shape \(points, 3\), as the model was trained on; got shape \(2, 4\)"
    ):
        posterior.predict(np.zeros((2, 4)))
