"""The prior of exchangeable units: its law, its coordinates, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import tunbridge as tb
from tunbridge import networks, priors

MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])


def bound(prior, units=5):
    model = tb.Model(networks.Shallow(units, outputs=1), prior, tb.likelihoods.Gaussian(0.1))
    return model.bind((np.zeros((8, 1)), np.zeros(8)))[0]


def drawn(prior, key, num, units=5):
    model = bound(prior, units)
    params = jax.jit(jax.vmap(lambda k: model.sample_params(k, model.example())))(jax.random.split(key, num))
    return params, jax.jit(jax.vmap(model.weights))(params)


def test_the_number_of_units_is_geometric_up_to_the_most(key):
    """Chi-square at level 1e-3 over six numbers."""
    params, weights = drawn(priors.Exchangeable(alpha=0.6), key, 4000)
    seen = np.bincount(np.asarray(params.scales[-1]).astype(int), minlength=6)
    wanted = np.array([0.6**m * 0.4 for m in range(5)] + [0.6**5])
    assert stats.chisquare(seen, wanted * seen.sum()).pvalue > 1e-3
    used = np.asarray(weights["output"]["weight"][..., 0]) != 0.0
    np.testing.assert_array_equal(used.sum(axis=1), params.scales[-1])
    logs = [float(bound(priors.Exchangeable(alpha=0.6)).prior.log_count(m, 0.6)) for m in range(6)]
    np.testing.assert_allclose(np.exp(logs), wanted, rtol=1e-5)


def test_weights_have_the_means_and_variances_that_were_given(key):
    """Kolmogorov-Smirnov at level 1e-4 for three entries, covariance within 5 standard errors."""
    _, weights = drawn(priors.Exchangeable(1.0, 4.0, jnp.array([1.0, -1.0]), MATRIX, 0.25), key, 4000, units=1)
    output, linear = weights["output"]["weight"][:, 0, 0], weights["linear"]["weight"][:, 0, 0]
    assert stats.kstest(np.asarray(output), stats.norm(1.0, 2.0).cdf).pvalue > 1e-4
    assert stats.kstest(np.asarray(linear), stats.norm(0.0, 0.5).cdf).pvalue > 1e-4
    hidden = np.stack([weights["hidden"]["bias"][:, 0], weights["hidden"]["weight"][:, 0, 0]])
    np.testing.assert_allclose(hidden.mean(axis=1), [1.0, -1.0], atol=5 / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(hidden), np.linalg.inv(MATRIX), atol=0.1)


@pytest.mark.parametrize(
    "prior",
    [
        priors.Exchangeable(dist.Normal(0.0, 1.0), dist.InverseGamma(3.0, 2.0), dist.Normal(0.0, 1.0), MATRIX),
        priors.Exchangeable(0.3, 2.0, 0.1, dist.Wishart(4.0, np.eye(2)), dist.HalfNormal(1.0)),
    ],
)
def test_raw_coordinates_are_the_inverse_of_weights(prior, key):
    model = bound(prior)
    params = model.sample_params(key, model.example())
    layout = model.network.layout(params.weights)
    back = model.prior.raw(model.weights(params), params.scales, layout)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), back, params.weights)
    assert set(model.prior.values(params.scales)) == {
        name for name, value in prior.numbers.items() if isinstance(value, dist.Distribution)
    }


def test_the_square_of_a_root_is_inverse_gamma(x64):
    root, square = priors.RootInverseGamma(2.5, 1.3), stats.invgamma(2.5, scale=1.3)
    s = np.array([0.4, 0.9, 2.0])
    np.testing.assert_allclose(root.log_prob(s), square.logpdf(s**2) + np.log(2.0 * s), rtol=1e-10)
    np.testing.assert_allclose(root.cdf(s), square.cdf(s**2), rtol=1e-8)
    draws = np.asarray(root.sample(jax.random.key(0), (4000,)))
    assert stats.kstest(draws**2, square.cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"alpha": 1.2}, "alpha between"),
        ({"alpha": dist.Normal(0.0, 1.0)}, "alpha between"),
        ({"output_variance": -1.0}, "above 0"),
        ({"hidden_precision": np.array([[1.0, 2.0], [2.0, 1.0]])}, "hidden_precision above 0"),
        ({"hidden_precision": np.eye(3)}, "hidden_precision of shape"),
        ({"hidden_mean": [1.0, 2.0, 3.0]}, "hidden_mean of shape"),
        ({"output_mean": "one"}, "output_mean as real numbers"),
    ],
)
def test_wrong_numbers_are_refused(wrong, words):
    with pytest.raises(tb.InputError, match=words):
        bound(priors.Exchangeable(**wrong))


def test_other_networks_are_refused():
    model = tb.Model(networks.MLP((3,)), priors.Exchangeable(), tb.likelihoods.Gaussian(0.1))
    with pytest.raises(tb.InputError, match=r"networks\.Shallow"):
        model.bind((np.zeros((8, 1)), np.zeros(8)))


def test_point_methods_find_unknown_numbers_at_their_medians():
    prior = bound(priors.Exchangeable(output_variance=dist.InverseGamma(3.0, 2.0))).prior
    median = prior.values(prior.median_scales(None, None))["output_variance"]
    assert float(median) == pytest.approx(stats.invgamma(3.0, scale=2.0).median(), rel=1e-3)
