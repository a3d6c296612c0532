import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from toys import Walk, equal, model, table
from tunbridge.inference.base import Method


def _draws(num=20):
    bound, rows = model().bind(table())
    params = jax.vmap(lambda k: bound.sample_params(k, rows.x))(jax.random.split(jax.random.key(0), num))
    return tb.Draws(bound, jax.random.key(1), params)


def test_draws_predict_with_all_or_evenly_spaced(key):
    posterior = _draws(21)
    x = table().x
    few = posterior.predict(x, num=3)
    chosen = jax.tree.map(lambda leaf: leaf[jnp.array([0, 10, 20])], posterior.params)
    np.testing.assert_allclose(few.mean, tb.Draws(posterior.model, key, chosen).predict(x).mean, rtol=1e-6)
    for num in (0, 22):
        with pytest.raises(tb.InputError, match=r"num= as a whole number from 1|num from 1 to the 21 draws kept"):
            posterior.predict(x, num=num)


@pytest.mark.slow
def test_the_same_call_gives_the_same_answer():
    posterior, x = _draws(), table().x
    assert equal(posterior.predict(x).mean, posterior.predict(x).mean)


def test_a_subset_of_points_agrees_with_the_whole():
    posterior, x = _draws(), table().x
    whole, part = posterior.predict(x), posterior.predict(x[3:9])
    np.testing.assert_allclose(part.quantile(0.3), whole.quantile(0.3)[3:9], rtol=1e-5)
    np.testing.assert_allclose(part.epistemic, whole.epistemic[3:9], rtol=1e-4, atol=1e-6)


def test_a_point_has_no_epistemic_part_and_refuses_num(key):
    posterior = tb.MAP(train=tb.Train(20)).fit(model(), table(), key=key)
    predictive = posterior.predict(table().x)
    assert float(jnp.abs(predictive.epistemic).max()) == 0.0
    np.testing.assert_allclose(predictive.aleatoric, 0.01, rtol=1e-5)
    with pytest.raises(tb.InputError, match="no num= for a point"):
        posterior.predict(table().x, num=3)
    assert jax.tree.leaves(posterior.sample(key, 7))[0].shape[0] == 7


def test_an_ensemble_predicts_the_average_of_its_members(key):
    posterior = tb.Ensemble(tb.MAP(train=tb.Train(30)), 4).fit(model(), table(), key=key)
    x = table().x
    members = [member.predict(x) for member in posterior.members]
    predictive = posterior.predict(x)
    np.testing.assert_allclose(predictive.mean, np.mean([m.mean for m in members], axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(predictive.epistemic, np.var([m.mean for m in members], axis=0), rtol=1e-2, atol=1e-6)


def test_an_ensemble_of_a_sampler_is_a_mixture_of_its_posteriors(key):
    posterior = tb.Ensemble(Walk(run=tb.Run(2, 5, 10)), 3).fit(model(), table(), key=key)
    assert [member.num for member in posterior.members] == [20, 20, 20]
    assert jax.tree.leaves(posterior.components(key, None))[0].shape[0] == 60
    assert jax.tree.leaves(posterior.components(key, 15))[0].shape[0] == 15
    with pytest.raises(tb.InputError, match="num as a multiple of the 3 members"):
        posterior.predict(table().x, num=4)


def test_sampling_a_mixture_visits_every_member(key):
    posterior = tb.Ensemble(tb.MAP(train=tb.Train(5)), 3).fit(model(), table(), key=key)
    drawn = posterior.sample(key, 60).weights["layers"][1]["weight"][:, 0, 0]
    assert len(np.unique(drawn)) == 3


@pytest.mark.parametrize("x", [np.zeros((2, 4)), np.zeros(3), np.full((2, 3), np.nan), np.zeros((0, 3))])
def test_inputs_that_do_not_fit_are_refused(x):
    with pytest.raises(tb.InputError):
        _draws().predict(x)


def test_bad_ensembles_are_refused():
    with pytest.raises(tb.InputError, match="a size of at least 1"):
        tb.Ensemble(tb.MAP(), 0)
    with pytest.raises(tb.InputError, match="method= as a Method"):
        tb.Ensemble(5)


def test_an_ensemble_of_ensembles_is_one_loop(key):
    posterior = tb.Ensemble(tb.Ensemble(tb.MAP(train=tb.Train(5)), 2), 3).fit(model(), table(), key=key)
    assert jax.tree.leaves(posterior.components(key, None))[0].shape[0] == 6


def test_the_registry_names_its_methods():
    assert tb.METHODS["map"] is tb.MAP
    assert "map" in tb.METHODS
    public = [getattr(tb, name) for name in tb.__all__]
    assert set(tb.METHODS.values()) == {
        thing for thing in public if isinstance(thing, type) and issubclass(thing, Method)
    }
    assert len(set(tb.METHODS.values())) == len(tb.METHODS)
    with pytest.raises(tb.InputError, match=r"a method of auto, map, ensemble, mcdropout, swag, .*; got 'nutz'"):
        tb.METHODS["nutz"]


@pytest.mark.parametrize("num", [None, 7])
def test_predictions_of_a_symmetric_posterior_have_no_noise_in_their_linear_part(num):
    """The network is linear: its mean over pairs of draws is that at the mean weights."""
    rows = table(24)
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3))
    method = tb.Laplace(point=tb.MAP(train=tb.Train(50)), tune=None)
    posterior = method.fit(model, rows, key=jax.random.key(0)).gaussian
    draws = posterior.components(jax.random.key(1), num)
    outputs = np.asarray(jax.vmap(posterior.model.outputs, (0, None))(draws, rows.x))
    at_mean = np.asarray(posterior.model.outputs(posterior.one(), rows.x))
    assert len(outputs) == (200 if num is None else 7)
    assert outputs[:6].mean(axis=0) == pytest.approx(at_mean, abs=1e-5)
    assert outputs.std(axis=0).min() > 1e-3
