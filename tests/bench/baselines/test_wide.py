import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from tunbridge.bench import WideKernel, wide_kernel
from tunbridge.bench.baselines.processes.moments import CLOSED, moment, quadrature

pytestmark = pytest.mark.usefixtures("x64")
X = np.array([[0.5, -1.0], [1.5, 0.3], [0.5, -1.0], [-2.0, 1.0]])


def model(hidden, activation="relu", scale=1.3):
    prior = tb.priors.Normal(tb.priors.fan_in(scale))
    return tb.Model(tb.networks.MLP(hidden, activation, outputs=1), prior, tb.likelihoods.Gaussian(0.1))


@jax.jit
def matrix(kernel):
    return kernel(jnp.asarray(X), jnp.asarray(X))


@pytest.mark.parametrize(("activation", "error"), [("erf", 1e-9), ("sin", 1e-12), ("identity", 1e-12), ("relu", 3e-3)])
def test_formulas_agree_with_quadrature(activation, error):
    both = jax.jit(lambda *three: (CLOSED[activation](*three), quadrature(activation, *three)))
    for a, c, b in [(1.0, 0.3, 0.5), (0.7, -0.4, 0.6), (2.0, 0.0, 0.1), (0.8, 0.8, 0.8)]:
        closed, summed = both(*jnp.array([a, c, b]))
        np.testing.assert_allclose(closed, summed, atol=error)


def test_steps_and_signs_meet_in_the_quadrant_formula():
    """P(u > 0, v > 0) = 1/4 + arcsin(rho) / 2 pi, and sign = 2 step - 1."""
    a, c, b = jnp.array([1.4, 0.5, 0.8])
    quadrant = 0.25 + np.arcsin(0.5 / np.sqrt(1.4 * 0.8)) / (2 * np.pi)
    np.testing.assert_allclose(moment("step", a, c, b), quadrant, rtol=1e-12)
    np.testing.assert_allclose(moment("sign", a, c, b), 4 * quadrant - 1, rtol=1e-12)


def test_a_smooth_activation_without_a_formula_has_its_moment():
    """E[tanh(u) tanh(v)] against 10^6 antithetic draws, four standard errors."""
    rng = np.random.default_rng(0)
    u, v = np.linalg.cholesky([[1.2, 0.7], [0.7, 0.9]]) @ rng.normal(size=(2, 1_000_000))
    terms = np.tanh(u) * np.tanh(v)
    found = float(jax.jit(moment, static_argnums=0)("tanh", *jnp.array([1.2, 0.7, 0.9])))
    assert abs(found - terms.mean()) < 4 * terms.std() / 1000


@pytest.mark.parametrize("activation", ["relu", "step"])
def test_networks_of_one_layer_have_the_covariance_of_the_limit(activation, key):
    """One hidden layer: the covariance of the outputs is the kernel at any width, here 3; four standard errors."""
    wanted = matrix(wide_kernel(model((3,), activation)))
    bound, _ = model((3,), activation).bind(tb.Data(X, np.zeros(4)))

    def draw(one):
        return bound.outputs(bound.sample_params(one, bound.example()), jnp.asarray(X))[:, 0]

    f = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(key, 20_000)))
    products = f[:, :, None] * f[:, None, :]
    assert (np.abs(products.mean(0) - wanted) < 4 * products.std(0) / np.sqrt(len(f))).all()


def test_a_deep_kernel_is_the_formula_applied_twice():
    one, two = matrix(wide_kernel(model((5,)))), matrix(wide_kernel(model((5, 5))))
    diagonal = jnp.diag(one)
    again = jax.jit(jax.vmap(jax.vmap(CLOSED["relu"], (None, 0, 0)), (0, 0, None)))(diagonal, one, diagonal)
    np.testing.assert_allclose(two, 1.3**2 * (1 + again), rtol=1e-12)


def test_a_linear_bottleneck_of_unit_scale_changes_nothing():
    plain = WideKernel(("erf", "erf"), (1.0, 2.0, 3.0), (0.1, 0.2, 0.3))
    joined = WideKernel(("erf", "identity", "erf"), (1.0, 2.0, 1.0, 3.0), (0.1, 0.2, 0.0, 0.3))
    np.testing.assert_allclose(matrix(plain), matrix(joined), rtol=1e-12)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_kernels_have_derivatives_where_inputs_coincide(activation):
    """By central differences in the first layer's weights, at pairs of which some are equal."""

    def total(weight):
        return jnp.sum(WideKernel((activation,), (weight, 1.5), (0.2, 0.1))(X, X))

    both = jax.jit(jax.value_and_grad(total))
    derivative = (both(1.0 + 1e-5)[0] - both(1.0 - 1e-5)[0]) / 2e-5
    np.testing.assert_allclose(both(1.0)[1], derivative, rtol=1e-4)


def test_plain_scales_of_the_first_layer_count_the_features():
    prior = tb.priors.Normal((0.8, tb.priors.fan_in(1.1)))
    plain = tb.Model(tb.networks.MLP((4,), "erf"), prior, tb.likelihoods.Gaussian(0.1))
    bound, _ = plain.bind(tb.Data(X, np.zeros(4)))
    for kernel in (wide_kernel(bound), wide_kernel(plain, features=2)):
        np.testing.assert_allclose(kernel.weights, (2 * 0.8**2, 1.1**2), rtol=1e-12)
        np.testing.assert_allclose(kernel.biases, (0.8**2, 1.1**2), rtol=1e-12)
    with pytest.raises(tb.InputError, match="bound to data"):
        wide_kernel(plain)


def test_priors_without_a_limit_are_refused():
    plain = tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    with pytest.raises(tb.InputError, match="fall with the width"):
        wide_kernel(plain)
    with pytest.raises(tb.InputError, match="known scales"):
        wide_kernel(model((4,), scale=dist.HalfNormal(1.0)))
    with pytest.raises(tb.InputError, match="one per layer"):
        WideKernel(("relu",), (1.0,), (1.0,))
    with pytest.raises(tb.InputError, match="activations of"):
        WideKernel(("ramp",), (1.0, 1.0), (1.0, 1.0))
