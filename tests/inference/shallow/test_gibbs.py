"""Gibbs sampling of shallow networks: its joint law, its predictions beside NUTS, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from inference.shallow import joint
from tunbridge import likelihoods, networks, priors

ROOT = priors.RootInverseGamma(3.0, 2.0)
CONJUGATE = priors.Exchangeable(
    dist.Normal(0.3, 0.7),
    dist.InverseGamma(3.0, 2.0),
    dist.Normal(0.0, 0.8),
    dist.Wishart(5.0, 0.2 * jnp.eye(2)),
    dist.InverseGamma(3.0, 2.0),
)
SLICED = priors.Exchangeable(0.5, dist.HalfNormal(1.0), dist.Logistic(0.0, 0.5), dist.Gamma(3.0, 2.0), 0.7)
MODELS = {
    "conjugate": tb.Model(networks.Shallow(3), CONJUGATE, likelihoods.Gaussian(ROOT)),
    "sliced, without a linear part": tb.Model(
        networks.Shallow(2, "relu", linear=False), SLICED, likelihoods.Gaussian(dist.HalfNormal(1.0))
    ),
    "known": tb.Model(networks.Shallow(3), priors.Exchangeable(), likelihoods.Gaussian(0.4)),
}
X = np.linspace(-1.5, 1.5, 5)[:, None]


def table(rows=40):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, (rows, 1))
    return x, np.sin(2.0 * x[:, 0]) + 0.2 * rng.normal(size=rows)


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize("integrated", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_gewekes_joint_test(name, integrated, key):
    """About 16 statistics per case at 8e-5 each: 1 % false alarms over all six."""
    worst = joint.compare(MODELS[name], X, key, 20_000, integrated=integrated)
    assert max(worst.values()) < joint.FALSE_ALARM, worst


@pytest.mark.slow
@pytest.mark.optimised
def test_a_coefficient_drawn_with_the_wrong_variance_fails_gewekes_test(key, monkeypatch):
    from tunbridge.inference.shallow import conditionals

    right = conditionals.coefficients

    def wrong(gram, products):
        law = right(gram, products)
        return law._replace(precision=law.precision / 1.5)

    monkeypatch.setattr(conditionals, "coefficients", wrong)
    worst = joint.compare(MODELS["conjugate"], X, key, 20_000)
    assert max(worst.values()) > joint.FALSE_ALARM


@pytest.mark.slow
@pytest.mark.optimised
def test_predictions_agree_with_nuts_and_hmc():
    """E10. Means and sds of the function at 9 inputs within 2 Monte Carlo standard errors of each other, on average.

    The mean of |z| over 18 comparisons of one method with another is 0.8 if both are right; that it exceeds 2 has
    probability below 1e-6 even with as few as three independent inputs.
    """
    model = MODELS["known"]
    x, y = table()
    inputs = np.linspace(-2.0, 2.0, 9)[:, None]
    run = tb.Run(4, 1000, 2000, 2)
    methods = [tb.GibbsMetropolis(run=run), tb.GibbsMetropolis(integrated=False, run=tb.Run(4, 2000, 4000, 20))]
    methods += [tb.NUTS(run=run), tb.HMC(run=run)]
    moments = []
    for method in methods:
        posterior = method.fit(model, (x, y), key=jax.random.key(1), progress=False)
        f = posterior.functions(inputs)[..., 0]
        moments.append([_moment(f), _moment((f - f.mean(axis=(0, 1))) ** 2)])
    for first, second in [(0, 1), (0, 2), (0, 3)]:
        z = [
            np.abs(a - b) / np.hypot(error_a, error_b)
            for (a, error_a), (b, error_b) in zip(moments[first], moments[second], strict=True)
        ]
        assert np.mean(z) < 2.0, (first, second, z)
        assert np.max(z) < 4.5, (first, second, z)


def _moment(values):
    """Mean over chains and draws, and its standard error from 20 batches per chain."""
    batches = values.reshape(values.shape[0] * 20, -1, values.shape[-1]).mean(axis=1)
    return values.mean(axis=(0, 1)), batches.std(axis=0, ddof=1) / np.sqrt(len(batches))


@pytest.mark.slow
def test_a_row_of_weight_two_counts_twice():
    """Same key, same rows: the sums are the same up to rounding, and so are the first draws."""
    x, y = table(12)
    model, run = MODELS["conjugate"], tb.Run(1, 0, 5, 1)
    weight = np.ones(len(y))
    weight[3] = 2.0
    fits = [
        tb.GibbsMetropolis(run=run).fit(model, data, key=jax.random.key(0), progress=False)
        for data in (tb.Data(x, y, weight), tb.Data(np.concatenate([x, x[3:4]]), np.append(y, y[3])))
    ]
    np.testing.assert_allclose(fits[0].params.noise[0], fits[1].params.noise[0], atol=1e-3)


REFUSED = {
    "a network of another form": (tb.Model(networks.MLP((3,)), priors.Normal(1.0), likelihoods.Gaussian(0.1)), "MLP"),
    "another prior": (tb.Model(networks.Shallow(3), priors.Normal(1.0), likelihoods.Gaussian(0.1)), "Normal"),
    "another likelihood": (
        tb.Model(networks.Shallow(3), priors.Exchangeable(), likelihoods.StudentT(4.0, 0.1)),
        "StudentT",
    ),
    "more units than rows": (
        tb.Model(networks.Shallow(41), priors.Exchangeable(), likelihoods.Gaussian(0.1)),
        "at most as many units",
    ),
    "unknown number of units": (
        tb.Model(networks.Shallow(3), priors.Exchangeable(alpha=0.5), likelihoods.Gaussian(0.1)),
        "ReversibleJump",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_integrated_is_refused(case):
    model, words = REFUSED[case]
    with pytest.raises(tb.InputError, match=words):
        tb.GibbsMetropolis().fit(model, table(), key=jax.random.key(0), progress=False)


def test_temperatures_and_two_outputs_are_refused():
    model = MODELS["known"]
    with pytest.raises(tb.InputError, match="temperature of 1"):
        tb.GibbsMetropolis(run=tb.Run(temperature=0.5)).fit(model, table(), key=jax.random.key(0))
    x, y = table()
    with pytest.raises(tb.InputError, match="one column"):
        tb.GibbsMetropolis().fit(model, (x, np.stack([y, y], axis=1)), key=jax.random.key(0))


@pytest.mark.slow
@pytest.mark.optimised
def test_gewekes_joint_test_where_hidden_units_take_some_inputs(key):
    """16 statistics at 8e-5 each."""
    x = np.random.default_rng(2).normal(size=(6, 3))
    prior = priors.Exchangeable(
        output_variance=dist.InverseGamma(3.0, 2.0), linear_variance=dist.InverseGamma(3.0, 2.0)
    )
    model = tb.Model(networks.Shallow(3, nonlinear=(2, 0)), prior, likelihoods.Gaussian(ROOT))
    worst = joint.compare(model, x, key, 20_000)
    assert max(worst.values()) < joint.FALSE_ALARM, worst
