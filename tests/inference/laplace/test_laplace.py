"""Laplace as its users meet it: post hoc, subsets, ensembles, refusals, answers in real time."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree

import tunbridge as tb
from toys import labelled, table

DATA = table(30)
MODEL = tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.2))
LABELS = labelled(30)
CLASSES = tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), tb.likelihoods.Categorical(3))
MASK = {
    "layers": [
        {"weight": np.ones((3, 4), bool), "bias": np.zeros(4, bool)},
        {"weight": np.zeros((4, 1), bool), "bias": np.ones(1, bool)},
    ]
}
POST_HOC = tb.Laplace(point=None, tune=None)


@pytest.fixture(scope="module")
def mode():
    return tb.MAP(train=tb.Train(2000)).fit(MODEL, DATA, key=jax.random.key(0))


@pytest.mark.slow
def test_post_hoc_keeps_the_weights_it_was_given(mode, key):
    weights = mode.model.weights(mode.params)
    posterior = POST_HOC.fit(MODEL, DATA, init=weights, key=key)
    for given, kept in zip(jax.tree.leaves(weights), jax.tree.leaves(posterior.gaussian.params.weights), strict=True):
        np.testing.assert_array_equal(given, kept)
    np.testing.assert_allclose(posterior.predict(DATA.x).mean, mode.predict(DATA.x).mean, rtol=1e-5, atol=1e-5)
    assert (posterior.predict(DATA.x).epistemic > 0).all()


@pytest.mark.slow
def test_distance_from_the_mode_is_told_in_posterior_standard_deviations(key, x64):
    """Of a line it is the length of the way back in the metric of the posterior precision."""
    line = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.2))
    at_mode = tb.Laplace(tune=None).fit(line, DATA, key=key)
    assert at_mode.decrement < 1e-3
    drawn = jax.tree.map(lambda leaf: leaf[0], at_mode.sample(jax.random.key(1), 1).weights)
    away = POST_HOC.fit(line, DATA, init=tb.Params(drawn), key=key)
    step = ravel_pytree(drawn)[0] - ravel_pytree(at_mode.gaussian.params.weights)[0]
    precision = np.linalg.inv(np.asarray(jax.vmap(at_mode.gaussian.covariance.product)(jnp.eye(4))))
    np.testing.assert_allclose(away.decrement, np.sqrt(step @ precision @ step), rtol=1e-3)
    assert "posterior standard deviations away" in away.notes[-1]


def test_a_compiled_function_answers_as_predict_does(mode, key):
    for posterior in (POST_HOC.fit(MODEL, DATA, init=mode, key=key), mode):
        predictive, answer = posterior.predict(DATA.x[:5]), posterior.compile((5, 3))(np.asarray(DATA.x[:5]))
        np.testing.assert_allclose(answer.expected, predictive.mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(answer.aleatoric, predictive.aleatoric, rtol=1e-5)
        np.testing.assert_allclose(answer.epistemic, predictive.epistemic, rtol=1e-3, atol=1e-6)
    with pytest.raises(tb.InputError, match="x_shape"):
        mode.compile((5, 4))


@pytest.mark.slow
def test_closed_form_agrees_with_draws_of_linear_functions(key):
    """Mean and variance of 4,000 functions, within 5 standard errors at each of 30 points."""
    posterior = tb.Laplace(tune=None).fit(MODEL, DATA, key=key)
    predictive = posterior.predict(DATA.x)
    functions = np.asarray(posterior.pushed(np.asarray(DATA.x), key, 4000)._block(0, 30, 30))[..., 0]
    error = functions.std(0) / np.sqrt(4000)
    assert (np.abs(functions.mean(0) - predictive.mean[:, 0]) < 5 * error).all()
    assert (np.abs(functions.var(0) / predictive.epistemic[:, 0] - 1) < 5 * np.sqrt(2 / 4000)).all()


@pytest.mark.slow
def test_links_agree_with_many_draws_of_the_logits(key):
    posterior = tb.Laplace().fit(CLASSES, LABELS, key=key)
    mean, covariance = posterior.moments(LABELS.x)
    root = np.linalg.cholesky(np.asarray(covariance) + 1e-6 * np.eye(3))
    z = np.random.default_rng(0).normal(size=(20000, 1, 3))
    logits = np.asarray(mean)[None] + np.einsum("nij,sxj->sni", root, z)
    truth = np.asarray(jax.nn.softmax(logits, axis=-1)).mean(0)
    for link, tolerance in (
        (tb.links.Quadrature(), 0.005),
        (tb.links.Probit(), 0.05),
        (tb.links.MonteCarlo(2000), 0.03),
    ):
        predictive = posterior.with_link(link).predict(LABELS.x)
        np.testing.assert_allclose(predictive.probs.sum(1), 1.0, rtol=1e-5)
        assert np.abs(predictive.probs - truth).max() < tolerance, link
        assert (predictive.epistemic >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "subset",
    [
        tb.subsets.LastLayer(),
        tb.subsets.Paths("layers/0/*"),
        tb.subsets.Mask(MASK),
    ],
)
def test_weights_outside_a_subset_stay_where_they_are(subset, mode, key):
    for structure in (tb.structures.Full(), tb.structures.Kronecker(), tb.structures.Diagonal()):
        posterior = tb.Laplace(structure=structure, subset=subset, point=None, tune=None).fit(
            MODEL, DATA, init=mode, key=key
        )
        spread = np.asarray(posterior.gaussian.covariance.diagonal())
        drawn = posterior.sample(key, 20).weights
        moved = np.concatenate([np.ptp(np.asarray(leaf), axis=0).ravel() for leaf in jax.tree.leaves(drawn)]) > 0
        np.testing.assert_array_equal(moved, spread > 0)
        assert 0 < moved.sum() < len(moved)


@pytest.mark.slow
def test_a_mixture_of_laplaces_averages_linearised_predictions(key):
    ensemble = tb.Ensemble(tb.Laplace(point=tb.MAP(train=tb.Train(100)), tune=None), 2).fit(MODEL, DATA, key=key)
    predictive = ensemble.predict(DATA.x[:7])
    each = [member.predict(DATA.x[:7]) for member in ensemble.members]
    np.testing.assert_allclose(predictive.mean, np.mean([p.mean for p in each], axis=0), atol=0.1)
    with pytest.raises(tb.InputError, match="Compile one member"):
        ensemble.compile((7, 3))


@pytest.mark.slow
def test_a_stream_gives_the_curvature_of_its_rows(mode, key):
    whole = POST_HOC.fit(MODEL, DATA, init=mode, key=key)
    x, y = np.asarray(DATA.x), np.asarray(DATA.y)
    stream = tb.Data.from_batches(lambda epoch: ((x[i : i + 10], y[i : i + 10]) for i in range(0, 30, 10)), num=30)
    parts = POST_HOC.fit(MODEL, stream, init=mode, key=key)
    np.testing.assert_allclose(parts.log_evidence, whole.log_evidence, rtol=1e-4)
    np.testing.assert_allclose(parts.predict(x).epistemic, whole.predict(x).epistemic, rtol=1e-3)


def test_wrong_calls_are_refused_before_anything_is_computed(mode, key):
    with pytest.raises(tb.InputError, match=r"init=, the weights, with point=None"):
        POST_HOC.fit(MODEL, DATA, key=key)
    with pytest.raises(tb.InputError, match="weights of this network"):
        POST_HOC.fit(MODEL, DATA, init={"w": jnp.zeros(3)}, key=key)
    with pytest.raises(tb.InputError, match="point= as a MAP"):
        tb.Laplace(point=tb.NUTS())
    with pytest.raises(tb.InputError, match="tune= as"):
        tb.Laplace(tune="guess")
    with pytest.raises(tb.InputError, match="curvature of outer products"):
        tb.Laplace(curvature=tb.curvatures.Hessian(), structure=tb.structures.Kronecker()).fit(MODEL, DATA, key=key)
    joint = tb.Model(MODEL.network, tb.priors.FullNormal((np.eye(16), np.eye(5))), MODEL.likelihood)
    with pytest.raises(tb.InputError, match="independent weights"):
        tb.Laplace().fit(joint, DATA, key=key)
    with pytest.raises(tb.InputError, match="no num="):
        POST_HOC.fit(MODEL, DATA, init=mode, key=key).predict(DATA.x, num=5)


@pytest.mark.slow
def test_damping_adds_precision(mode, key):
    plain, damped = (
        tb.Laplace(point=None, tune=None, damping=damping).fit(MODEL, DATA, init=mode, key=key)
        for damping in (0.0, 3.0)
    )
    assert (damped.predict(DATA.x).epistemic < plain.predict(DATA.x).epistemic).all()


@pytest.mark.slow
def test_prior_scales_by_validation_do_not_touch_the_weights(key):
    prior = tb.priors.Normal(dist.LogNormal(0.0, 0.5))
    model = tb.Model(tb.networks.MLP((4,)), prior, tb.likelihoods.Gaussian(0.2))
    posterior = tb.Laplace(tune="validation").fit(model, DATA, key=key)
    assert "Prior scales were multiplied by" in posterior.notes[0]
