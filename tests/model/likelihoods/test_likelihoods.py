import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import expit, log_softmax

import tunbridge as tb
from tunbridge.model.likelihoods import Bernoulli, Categorical, Gaussian, Heteroscedastic

LIKELIHOODS = {
    "gaussian": (Gaussian(0.3), 2, 2),
    "gaussian by output": (Gaussian(jnp.array([0.3, 2.0])), 2, 2),
    "heteroscedastic": (Heteroscedastic(), 2, 4),
    "bernoulli": (Bernoulli(), 1, 1),
    "categorical": (Categorical(3), 1, 3),
}


def test_gaussian_is_scipys(key, x64):
    f, y = jax.random.normal(key, (2, 7, 2))
    wanted = stats.norm(np.asarray(f), [0.3, 2.0]).logpdf(np.asarray(y)).sum(1)
    np.testing.assert_allclose(Gaussian(jnp.array([0.3, 2.0])).distribution(f).log_prob(y), wanted, atol=1e-10)
    wanted = stats.norm(np.asarray(f), 0.3).logpdf(np.asarray(y)).sum(1)
    np.testing.assert_allclose(Gaussian(0.3).distribution(f).log_prob(y), wanted, atol=1e-10)


def test_heteroscedastic_is_scipys_and_never_below_its_floor(key, x64):
    out, y = jax.random.normal(key, (6, 4)), jnp.ones((6, 2))
    sigma = 0.01 + np.log1p(np.exp(np.asarray(out[:, 2:])))
    wanted = stats.norm(np.asarray(out[:, :2]), sigma).logpdf(np.asarray(y)).sum(1)
    likelihood = Heteroscedastic(floor=0.01)
    np.testing.assert_allclose(likelihood.distribution(out).log_prob(y), wanted, atol=1e-10)
    low = likelihood.distribution(jnp.full((1, 2), -1e4)).variance
    assert float(low[0, 0]) == pytest.approx(1e-4)


def test_categorical_is_the_cross_entropy(key, x64):
    logits, y = 3 * jax.random.normal(key, (9, 4)), jnp.arange(9) % 4
    wanted = log_softmax(np.asarray(logits), axis=1)[np.arange(9), np.asarray(y)]
    np.testing.assert_allclose(Categorical(4).distribution(logits).log_prob(y), wanted, atol=1e-12)


def test_bernoulli_is_y_log_p_plus_the_rest(key, x64):
    f, y = 3 * jax.random.normal(key, (9, 1)), jnp.arange(9) % 2
    p, labels = expit(np.asarray(f[:, 0])), np.asarray(y)
    wanted = labels * np.log(p) + (1 - labels) * np.log(1 - p)
    np.testing.assert_allclose(Bernoulli().distribution(f).log_prob(y), wanted, atol=1e-12)
    np.testing.assert_allclose(wanted, stats.bernoulli(p).logpmf(labels), atol=1e-12)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_shapes_are_points_then_events(name, key):
    likelihood, width, outputs = LIKELIHOODS[name]
    classes = name in ("bernoulli", "categorical")
    y = likelihood.check(jnp.arange(6) % 2 if classes else jnp.ones((6, width)))
    assert likelihood.num_outputs(y) == outputs
    made = likelihood.distribution(jax.random.normal(key, (6, outputs)), likelihood.sample_noise(key))
    assert made.batch_shape == (6,)
    assert made.log_prob(y).shape == (6,)
    assert made.sample(key).shape == y.shape


def test_mean_and_variance_agree_with_samples(key):
    """Four standard errors over 8 figures: false alarms 0.05 %, with a fixed key."""
    num = 100_000
    for likelihood, outputs in ((Gaussian(0.3), jnp.array([[1.0]])), (Heteroscedastic(), jnp.array([[1.0, 0.5]]))):
        made = likelihood.distribution(jnp.repeat(outputs, num, axis=0))
        draws = np.asarray(made.sample(key))[:, 0]
        sd = float(made.variance[0, 0]) ** 0.5
        assert abs(draws.mean() - float(made.mean[0, 0])) < 4 * sd / num**0.5
        assert abs(draws.var() - sd**2) < 4 * sd**2 * (2 / num) ** 0.5
    for likelihood, outputs in ((Bernoulli(), jnp.array([[0.7]])), (Categorical(2), jnp.array([[0.0, 0.7]]))):
        p = float(expit(0.7))
        draws = np.asarray(likelihood.distribution(jnp.repeat(outputs, num, axis=0)).sample(key))
        assert abs(draws.mean() - p) < 4 * (p * (1 - p) / num) ** 0.5


def test_unknown_noise_has_its_prior_with_and_without_the_jacobian(x64):
    likelihood = Gaussian(dist.Gamma(0.5, 1.0))
    noise = (jnp.log(jnp.asarray(0.4)),)
    plain = stats.gamma(0.5).logpdf(0.4)
    assert float(likelihood.log_noise(noise, jacobian=False)) == pytest.approx(plain, abs=1e-10)
    assert float(likelihood.log_noise(noise)) == pytest.approx(plain + np.log(0.4), abs=1e-10)
    assert float(likelihood.sigma(noise)) == pytest.approx(0.4)
    assert float(jnp.exp(likelihood.median_noise()[0])) == pytest.approx(stats.gamma(0.5).median(), rel=1e-6)


def test_known_noise_is_converted_to_other_units_and_a_prior_is_not():
    assert float(Gaussian(3.0).in_units(jnp.array([2.0])).scale[0]) == 1.5
    unknown = Gaussian(dist.Gamma(0.5, 1.0))
    assert unknown.in_units(jnp.array([2.0])).scale is unknown.scale


@pytest.mark.parametrize(
    ("likelihood", "y", "said"),
    [
        (Categorical(3), [0, 1, 3], "labels from 0 to 2 for Categorical; got labels from 0 to 3"),
        (Categorical(), [-1, 0, 1], "got labels from -1 to 1"),
        (Bernoulli(), [0, 1, 2], "labels from 0 to 1 for Bernoulli; got labels from 0 to 2"),
        (Categorical(), [[0, 1], [1, 0], [0, 1]], r"labels of shape \(points,\) for Categorical"),
        (Bernoulli(), [0.5, 1.0, 0.0], "whole numbers as labels; got 0.5"),
        (Gaussian(jnp.ones(3)), [1.0, 2.0, 3.0], r"a scale of shape \(\) or \(1,\)"),
    ],
)
def test_targets_that_do_not_fit_are_refused_at_the_door(likelihood, y, said, key):
    model = tb.Model(tb.networks.MLP((3,)), tb.priors.Normal(1.0), likelihood)
    with pytest.raises(tb.InputError, match=said):
        tb.MAP().fit(model, tb.Data(np.zeros((3, 2)), y), key=key)


@pytest.mark.parametrize("make", [lambda: Gaussian(0.0), lambda: Gaussian("big"), lambda: Heteroscedastic(0.0)])
def test_bad_scales_are_refused(make):
    with pytest.raises(tb.InputError):
        make()
    with pytest.raises(tb.InputError, match="at least 2 classes"):
        Categorical(1)
