"""Flat and Jeffreys priors against closed forms, quadrature and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import tunbridge as tb
from tunbridge.core.tree import ravel, unravel

INPUTS = np.linspace(-2.0, 2.0, 12)[:, None]


def _one(outputs):
    """A network of one weight w, whose outputs are a function of w and x."""
    return tb.networks.from_functions(lambda k, x: {"w": jnp.ones((1, 1))}, lambda w, x: outputs(w["w"], x))


def _given(prior, network, x=INPUTS):
    """The prior of a network's weights at these inputs, the weights, and their layout."""
    data = tb.Data(x, np.zeros(len(x)))
    weights = jax.jit(network.init)(jax.random.key(0), data.x)
    layout = network.layout(weights)
    return prior.given(network, data).bind(weights, layout), weights, layout


def _densities(prior, weights, layout, grid):
    """Density of the weight itself, normalised on the grid."""

    def log_prob(w):
        raw = prior.raw({"w": w[None, None]}, (), layout)
        volume = jax.jacfwd(lambda at: ravel(prior.weights(unravel(weights, at), (), layout)))(ravel(raw))
        return prior.log_prob(raw, (), layout) - jnp.log(jnp.abs(volume[0, 0]))

    heights = np.exp(np.asarray(jax.jit(jax.vmap(log_prob))(jnp.asarray(grid))))
    return heights / np.trapezoid(heights, grid)


def test_the_information_is_that_of_differences_and_of_the_likelihoods_curvature(key, x64):
    network = tb.networks.MLP((3,), outputs=2)
    rows = np.random.default_rng(0)
    data = tb.Data(rows.normal(size=(15, 2)), np.zeros((15, 2)), rows.uniform(0.5, 2.0, size=15))
    weights = jax.jit(network.init)(key, data.x)
    found = tb.priors.information(network, weights, data)
    at, step = np.asarray(ravel(weights)), 1e-6
    roots = np.sqrt(np.asarray(data.weight))[:, None]

    @jax.jit
    def outputs(position):
        return (network.apply(unravel(weights, position), data.x) * roots).ravel()

    moves = step * np.eye(len(at))
    columns = np.stack([(outputs(at + move) - outputs(at - move)) / (2 * step) for move in moves], axis=1)
    np.testing.assert_allclose(found, columns.T @ columns, rtol=1e-6, atol=1e-7)

    y = network.apply(weights, data.x)  # at the expected outputs, the curvature of the negative log likelihood

    def loss(position):
        off = network.apply(unravel(weights, position), data.x) - y
        return 0.5 * jnp.sum(jnp.asarray(data.weight)[:, None] * off**2)

    np.testing.assert_allclose(found, jax.jit(jax.hessian(loss))(jnp.asarray(at)), rtol=1e-8, atol=1e-9)


def test_jeffreys_density_is_the_root_of_the_determinant_times_the_flat_one(key, x64):
    network = tb.networks.MLP((2,), outputs=1)
    prior, weights, layout = _given(tb.priors.Jeffreys(3.0), network)
    flat, data = tb.priors.Flat(3.0), tb.Data(INPUTS, np.zeros(12))

    @jax.jit
    def off(at):
        raw = unravel(weights, at)
        _, volume = jnp.linalg.slogdet(tb.priors.information(network, flat.weights(raw, (), layout), data))
        return prior.log_prob(raw, (), layout) - flat.log_prob(raw, (), layout) - 0.5 * volume

    heights = [float(off(at)) for at in jax.random.normal(key, (5, ravel(weights).size))]
    np.testing.assert_allclose(heights, 0.0, atol=1e-8)  # the determinant of J'J rounds as the square of J's condition


def test_jeffreys_prior_does_not_depend_on_how_the_weight_is_written(x64):
    """The slope w, and w = v^3 with v within the cube root of the bound, have one prior; the flat ones differ."""
    plain, cubed = _one(lambda w, x: jnp.tanh(x @ w)), _one(lambda v, x: jnp.tanh(x @ v**3))
    grid = np.linspace(0.2, 7.8, 2000)
    roots = np.cbrt(grid)
    for prior, same in ((tb.priors.Jeffreys, True), (tb.priors.Flat, False)):
        one = _densities(*_given(prior(8.0), plain), grid)
        other = _densities(*_given(prior(2.0), cubed), roots) / (3 * roots**2)
        assert (np.abs(one - other / np.trapezoid(other, grid)).max() < 1e-5) == same


@pytest.mark.parametrize("prior", [tb.priors.Flat(2.0), pytest.param(tb.priors.Jeffreys(2.0), marks=pytest.mark.slow)])
def test_draws_have_the_density(prior, key):
    """Kolmogorov-Smirnov at level 1e-3, with a fixed key: draws of a weight against the density on a grid."""
    bound, weights, layout = _given(prior, _one(lambda w, x: jnp.tanh(x @ w)))
    raws, _ = jax.jit(jax.vmap(lambda k: bound.sample(k, weights, layout)))(jax.random.split(key, 1000))
    drawn = np.asarray(jax.vmap(lambda raw: bound.weights(raw, (), layout)["w"])(raws)).ravel()
    grid = np.linspace(-2.0, 2.0, 1003)[1:-1]
    mass = np.cumsum(_densities(bound, weights, layout, grid))
    assert stats.kstest(drawn, lambda w: np.interp(w, grid, mass / mass[-1])).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("prior", [tb.priors.Flat(3.0), tb.priors.Jeffreys(3.0)])
def test_a_sampler_finds_the_posterior_of_quadrature(prior, key):
    """The mean within 4 Monte Carlo errors, the sd within 10 %: false alarms below 0.1 %, with a fixed key."""
    network, y = _one(lambda w, x: jnp.tanh(x @ w)), np.tanh(0.8 * INPUTS[:, 0]) + 0.3
    model = tb.Model(network, prior, tb.likelihoods.Gaussian(0.7))
    posterior = tb.NUTS(run=tb.Run(4, 500, 1000)).fit(model, (INPUTS, y), key=key, progress=False)
    bound, weights, layout = _given(prior, network)
    drawn = np.asarray(bound.weights(posterior.params.weights, (), layout)["w"]).reshape(4, 1000)
    grid = np.linspace(-3.0, 3.0, 2003)[1:-1]
    fit = stats.norm(np.tanh(grid[:, None] * INPUTS[:, 0]), 0.7).logpdf(y).sum(axis=1)
    mass = _densities(bound, weights, layout, grid) * np.exp(fit - fit.max())
    mean = np.average(grid, weights=mass)
    error = drawn.std() / np.sqrt(float(tb.diagnostics.ess_bulk(drawn[..., None])[0]))
    assert abs(drawn.mean() - mean) < 4 * error
    assert drawn.std() == pytest.approx(np.sqrt(np.average((grid - mean) ** 2, weights=mass)), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hmc", "mala", "mclmc", "randomwalk", "temperedsmc", "sgld", "sghmc", "sgnht"])
def test_every_sampler_takes_it(name, key):
    """Twenty rows of a curve are followed; NUTS is compared with quadrature above."""
    model = tb.Model(tb.networks.MLP((2,)), tb.priors.Jeffreys(3.0), tb.likelihoods.Gaussian(0.3))
    x = np.linspace(-2.0, 2.0, 20)[:, None]
    y = np.tanh(1.5 * x[:, 0])
    posterior = tb.METHODS[name]().fit(model, (x, y), key=key, progress=False)
    assert np.mean((np.asarray(posterior.predict(x).mean)[:, 0] - y) ** 2) < 0.05


def test_the_two_jeffreys_priors_of_the_noise_are_powers(x64):
    """Independence: p(sigma) ~ 1 / sigma; joint with seven weights: 1 / sigma^8, as the rate goes to 0."""
    sigma = np.array([0.5, 1.0, 3.0])
    for noise, power in ((dist.LogUniform(0.001, 10.0), 1), (tb.priors.RootInverseGamma(3.5, 1e-6), 8)):
        heights = noise.log_prob(jnp.asarray(sigma))
        np.testing.assert_allclose(np.diff(heights), -power * np.diff(np.log(sigma)), atol=1e-4)


@pytest.mark.slow
def test_a_model_that_knows_its_inputs_is_saved_and_read(key, tmp_path):
    model = tb.Model(tb.networks.MLP((2,), outputs=1), tb.priors.Jeffreys((5.0, 3.0)), tb.likelihoods.Gaussian(0.3))
    x, y = np.asarray(INPUTS), np.sin(INPUTS[:, 0])
    posterior = tb.NUTS(run=tb.Run(2, 20, 20)).fit(model, (x, y), key=key, progress=False)
    posterior.save(tmp_path / "posterior")
    back = tb.load(tmp_path / "posterior")
    np.testing.assert_array_equal(back.predict(x).mean, posterior.predict(x).mean)
    np.testing.assert_array_equal(back.model.prior.x, posterior.model.prior.x)


REFUSED = {
    "no bound": (lambda: tb.priors.Flat(np.inf), "a finite bound"),
    "an unknown bound": (lambda: tb.priors.Flat(dist.HalfNormal(1.0)), "a known bound"),
    "a negative bound": (lambda: tb.priors.Jeffreys(-1.0), "bound above 0"),
    "bounds of other layers": (
        lambda: _given(tb.priors.Flat((1.0, 2.0, 3.0)), tb.networks.MLP((2,), outputs=1)),
        "got 3",
    ),
    "few rows": (
        lambda: _given(tb.priors.Jeffreys(), tb.networks.MLP((5,), outputs=1)),
        "as many observations as weights, 16",
    ),
    "a part": (
        lambda: _given(tb.priors.ByPath({"*": tb.priors.Jeffreys()}), tb.networks.MLP((2,), outputs=1)),
        "Jeffreys for all weights of a model",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case):
    make, said = REFUSED[case]
    with pytest.raises(tb.InputError, match=said):
        make()
