import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax

import tunbridge as tb
from toys import labelled

LOGITS = np.random.default_rng(0).normal(size=(6, 5, 3)) * 2  # components, points, classes


def classes(logits, likelihood):
    network = tb.networks.from_functions(lambda k, x: {"f": jnp.zeros(logits.shape[1:])}, lambda w, x: w["f"][_rows(x)])
    made = tb.Model(network, tb.priors.Normal(1.0), likelihood)
    params = tb.Params({"f": jnp.asarray(logits)})
    return tb.Draws(made, jax.random.key(0), params).predict(np.arange(logits.shape[1], dtype=float)[:, None])


def _rows(x):
    return x[:, 0].astype(int)


def entropy(p):
    return -np.sum(p * np.log(p), axis=-1)


def test_categorical_split_is_entropy_and_mutual_information(x64):
    predictive = classes(LOGITS, tb.likelihoods.Categorical(3))
    p = softmax(LOGITS, axis=-1)
    np.testing.assert_allclose(predictive.probs, p.mean(0), rtol=1e-10)
    np.testing.assert_allclose(predictive.aleatoric, entropy(p).mean(0), rtol=1e-10)
    np.testing.assert_allclose(predictive.total, entropy(p.mean(0)), rtol=1e-10)
    np.testing.assert_allclose(predictive.epistemic, entropy(p.mean(0)) - entropy(p).mean(0), atol=1e-12)
    np.testing.assert_array_equal(predictive.total, predictive.aleatoric + predictive.epistemic)
    np.testing.assert_array_equal(predictive.mode, p.mean(0).argmax(-1))
    np.testing.assert_array_equal(predictive.entropy, predictive.total)
    assert float(predictive.epistemic.max()) <= np.log(6)


def test_bernoulli_has_two_columns(x64):
    logits = LOGITS[..., :1]
    predictive = classes(logits, tb.likelihoods.Bernoulli())
    p = expit(logits[..., 0]).mean(0)
    np.testing.assert_allclose(predictive.probs, np.stack([1 - p, p], axis=1), rtol=1e-10)
    np.testing.assert_allclose(predictive.log_prob(np.ones(5, int)), np.log(p), rtol=1e-10)


def test_log_prob_is_the_log_of_the_mean_probability(x64):
    y = np.array([0, 1, 2, 1, 0])
    wanted = np.log(np.exp(log_softmax(LOGITS, axis=-1)).mean(0))[np.arange(5), y]
    np.testing.assert_allclose(classes(LOGITS, tb.likelihoods.Categorical(3)).log_prob(y), wanted, rtol=1e-10)


def test_epistemic_is_never_negative_and_certain_networks_are_no_nan():
    for scale in (1e-3, 1.0, 300.0):
        predictive = classes(LOGITS * scale, tb.likelihoods.Categorical(3))
        for part in (predictive.probs, predictive.total, predictive.aleatoric, predictive.epistemic):
            assert np.isfinite(part).all()
        assert float(predictive.epistemic.min()) >= 0.0


def test_samples_come_as_often_as_the_probabilities_say(key):
    """Chi-square at level 1e-3 for each of 5 points, fixed key."""
    from scipy.stats import chisquare

    predictive = classes(LOGITS, tb.likelihoods.Categorical(3))
    draws = np.asarray(predictive.sample(key, 3000))
    assert draws.shape == (3000, 5)
    for i in range(5):
        wanted = 3000 * np.asarray(predictive.probs[i], np.float64)
        assert chisquare(np.bincount(draws[:, i], minlength=3), wanted / wanted.sum() * 3000).pvalue > 1e-3


@pytest.mark.parametrize("name", ["mean", "variance", "std"])
def test_the_mean_of_unordered_classes_raises(name):
    with pytest.raises(tb.InputError, match="a predictive of numbers"):
        getattr(classes(LOGITS, tb.likelihoods.Categorical(3)), name)


def test_other_questions_of_numbers_raise():
    predictive = classes(LOGITS, tb.likelihoods.Categorical(3))
    for ask in (
        lambda: predictive.quantile(0.5),
        lambda: predictive.interval(0.9),
        lambda: predictive.cdf(np.zeros(5)),
    ):
        with pytest.raises(tb.InputError, match="a predictive of numbers"):
            ask()
    with pytest.raises(tb.InputError, match="labels from 0 to 2"):
        predictive.log_prob(np.array([0, 1, 2, 3, 0]))


@pytest.mark.parametrize("gap", [60.0, 84.0, 86.0, 88.0, 120.0])
def test_one_certain_network_among_many_makes_no_infinity(gap):
    """p / S underflows in float32 where p does not."""
    logits = np.zeros((100, 1, 2))
    logits[:, 0, 1] = -200.0
    logits[0, 0, 1] = -gap
    predictive = classes(logits, tb.likelihoods.Categorical(2))
    assert np.isfinite(predictive.epistemic).all()
    assert np.isfinite(predictive.total).all()


def test_labels_are_those_of_training_and_not_of_the_test(key):
    data = labelled(30)
    made = tb.Model(tb.networks.MLP((3,)), tb.priors.Normal(1.0), tb.likelihoods.Categorical())
    posterior = tb.MAP(train=tb.Train(5)).fit(made, data, key=key)
    with pytest.raises(tb.InputError, match="labels from 0 to 2"):
        posterior.predict(data.x[:3]).log_prob([0, 5, 9])
