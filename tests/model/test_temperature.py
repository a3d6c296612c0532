"""The temperature is that of the density in the user's coordinates: no transform to the real line changes it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import tunbridge as tb
from tunbridge.core.tree import ravel
from tunbridge.inference.sgmcmc.everything import Everything
from tunbridge.model import transforms
from tunbridge.runtime.loop import Options

X = np.array([[-1.0], [0.2], [0.9], [1.7]])
Y = np.array([[-0.7], [0.6], [0.3], [1.9]])
NETWORK = tb.networks.from_functions(
    lambda key, x: {"w": jnp.zeros((1, 1))},
    lambda weights, x: x @ weights["w"],
    layout={"w": tb.networks.Leaf("weight", inputs=(0,), outputs=(1,))},
)
W = np.linspace(-9.0, 9.0, 1201)
VALUES = np.exp(np.linspace(np.log(0.02), np.log(40.0), 401))
"""Noise, or scales."""


class SoftplusGamma(dist.Gamma):
    """The same distribution, sampled through a softplus in place of an exponential."""

    support = dist.constraints.softplus_positive


class SoftplusLogNormal(dist.LogNormal):
    support = dist.constraints.softplus_positive


def grid(prior, likelihood, temperature, params_at, law):
    """exp of the target's log density at each (w, value), per unit of w and of the value."""
    bound, rows = tb.Model(NETWORK, prior, likelihood).bind(tb.Data(X, Y))
    target = tb.Target(bound, 4.0, temperature)
    transform = dist.biject_to(law.support)
    real = transforms.to_real(law, jnp.asarray(VALUES))

    def log_density(w, u):
        per_value = transform.log_abs_det_jacobian(u, transform(u))
        return target.log_density(params_at({"w": w[None, None]}, u), rows) - per_value

    logs = jax.jit(jax.vmap(jax.vmap(log_density, (None, 0)), (0, None)))(jnp.asarray(W), real)
    return np.exp(np.asarray(logs) - np.max(logs))


def marginal(density):
    over = np.trapezoid(density, W, axis=0)
    return over / np.trapezoid(over, VALUES)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("law", [dist.Gamma(2.0, 2.0), SoftplusGamma(2.0, 2.0)], ids=["exponential", "softplus"])
def test_the_tempered_noise_has_the_density_to_the_power_of_1_over_t_in_its_own_units(law, temperature, x64):
    """Its marginal by quadrature over the weight, for two maps to the real line."""
    found = marginal(
        grid(tb.priors.Normal(1.5), tb.likelihoods.Gaussian(law), temperature, lambda w, u: tb.Params(w, (), (u,)), law)
    )
    residuals = Y[:, 0] - W[:, None] * X[:, 0]
    joint = stats.norm(0, VALUES[:, None]).logpdf(residuals[:, None]).sum(-1)
    joint += stats.norm(0, 1.5).logpdf(W)[:, None] + stats.gamma(2, scale=0.5).logpdf(VALUES)
    expected = marginal(np.exp((joint - joint.max()) / temperature))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize(
    "law", [dist.LogNormal(0.3, 0.6), SoftplusLogNormal(0.3, 0.6)], ids=["exponential", "softplus"]
)
def test_the_tempered_scale_has_its_prior_to_the_power_of_1_over_t_with_raw_weights(law, temperature, x64):
    """Weights w = s r are tempered as r: given the scale they are N(0, T s^2), and no power of the scale appears."""
    found = marginal(
        grid(tb.priors.Normal(law), tb.likelihoods.Gaussian(0.7), temperature, lambda r, u: tb.Params(r, (u,), ()), law)
    )
    residuals = Y[:, 0] - (W[:, None] * VALUES)[..., None] * X[:, 0]
    joint = stats.norm(0, 0.7).logpdf(residuals).sum(-1)
    joint += stats.norm(0, 1).logpdf(W)[:, None] + stats.lognorm(0.6, scale=np.exp(0.3)).logpdf(VALUES)
    expected = marginal(np.exp((joint - joint.max()) / temperature))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


PRIORS = {
    "horseshoe": tb.priors.Horseshoe(slab=dist.HalfNormal(2.0)),
    "hierarchical": tb.priors.Hierarchical(tb.priors.SpikeAndSlab(dist.Beta(2.0, 5.0)), dist.HalfCauchy(1.0)),
    "by path": tb.priors.ByPath(
        {"layers/0/*": tb.priors.ARD(path="layers/0/weight")}, tb.priors.Laplace(dist.Gamma(2, 1))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
def test_one_over_t_multiplies_all_but_the_jacobian(prior, key, x64):
    """For a density with values and gradients; all rows in blocks have the same."""
    likelihood = tb.likelihoods.StudentT(dist.Gamma(2.0, 0.1), dist.Gamma(2.0, 1.0))
    bound, rows = tb.Model(tb.networks.MLP((3,)), PRIORS[prior], likelihood).bind(tb.Data(X, Y))
    params = jax.jit(bound.sample_params)(key, rows.x)

    def value_and_gradient(temperature, density=lambda target: target.log_density):
        target = tb.Target(bound, 4.0, temperature)
        value, gradient = jax.jit(jax.value_and_grad(lambda p: density(target)(p, rows)))(params)
        return np.append(ravel(gradient), value)

    def natural(params):
        prior, noise = bound.prior.log_hyper(params.scales, jacobian=False), params.noise
        target = tb.Target(bound, 4.0)
        log_p = target.log_likelihood(params, rows) + target.log_prior_weights(params)
        return log_p + prior + bound.likelihood.log_noise(noise, jacobian=False)

    value, gradient = jax.jit(jax.value_and_grad(natural))(params)
    untempered = np.append(ravel(gradient), value)
    jacobian = value_and_gradient(1.0) - untempered
    everything = Everything.of(rows, "test")
    for temperature in (0.1, 2.0):
        found = value_and_gradient(temperature)
        np.testing.assert_allclose(found, untempered / temperature + jacobian, rtol=1e-8)
        blocks = value_and_gradient(temperature, lambda target: lambda p, _: everything.log_density(target, p))
        np.testing.assert_allclose(blocks, found, rtol=1e-8)


def test_gradients_with_an_anchor_are_those_of_the_tempered_density(key, x64):
    """With all rows in the batch they have no noise."""
    bound, rows = tb.Model(NETWORK, tb.priors.Horseshoe(), tb.likelihoods.Gaussian(dist.Gamma(2.0, 2.0))).bind(
        tb.Data(X, Y)
    )
    params, anchor = (jax.jit(bound.sample_params)(jax.random.fold_in(key, i), rows.x) for i in range(2))
    target = tb.Target(bound, 4.0, 2.0)
    estimator = tb.subsampling.ControlVariate().settled(bound, rows, 1, key, Options(anchor))
    found = jax.jit(lambda e, t, p: e.estimate(t, (), p, rows))(estimator, target, ravel(params))
    value, gradient = jax.jit(jax.value_and_grad(target.log_density))(params, rows)
    np.testing.assert_allclose(
        np.append(found.gradient, found.log_density), np.append(ravel(gradient), value), rtol=1e-8
    )


def test_at_temperature_1_no_jacobian_is_set_apart(key):
    """If it is given as a number; an array of 1 gives the same density."""
    bound, rows = tb.Model(
        tb.networks.MLP((3,)), PRIORS["horseshoe"], tb.likelihoods.Gaussian(dist.Gamma(2.0, 2.0))
    ).bind(tb.Data(X, Y))
    params = jax.jit(bound.sample_params)(key, rows.x)
    assert not tb.Target(bound, 4.0).tempered
    assert not tb.Target(bound, 4.0, 1).tempered
    whole = tb.Target(bound, 4.0, jnp.ones(()))
    assert whole.tempered
    np.testing.assert_allclose(
        whole.log_density(params, rows), tb.Target(bound, 4.0).log_density(params, rows), rtol=1e-5
    )
