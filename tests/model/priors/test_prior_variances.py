"""The variance of each weight in the normal that stands for a prior, and the densities of scales without a Jacobian."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats
from scipy.special import log_expit

import tunbridge as tb
import zoo
from toys import quick
from tunbridge import priors
from tunbridge.core.tree import ravel
from tunbridge.model import transforms

X = jnp.zeros((1, 3))
LEAF = {"w": jnp.array([[-3.0, -0.4, 0.0], [1e-6, 0.02, 7.0]])}
LAYOUT = {"w": tb.networks.Leaf("weight", inputs=(0,), outputs=(1,))}
CORRELATED = ("full", "matrix", "low rank", "joint")
LAWS = ("laplace", "laplace unknown", "student-t", "cauchy", "logistic")
MIXTURES = (*LAWS, "two normals", "spike and slab", "hierarchical")
NORMAL = tuple(name for name in zoo.PRIORS if name not in (*CORRELATED, *MIXTURES, "by path"))


def bound(name, key):
    weights = jax.eval_shape(lambda: zoo.NETWORK.init(key, X))
    layout = zoo.NETWORK.layout(weights)
    return zoo.PRIORS[name].bind(weights, layout), weights, layout


def asked(name, key, ask):
    """What `ask` finds of a prior, its layout, and a draw of raw coordinates and scales."""
    prior, weights, layout = bound(name, key)
    return jax.jit(lambda key: ask(prior, layout, *prior.sample(key, weights, layout)))(key)


@pytest.mark.parametrize("name", quick(NORMAL, ("regularised horseshoe", "ard")))
def test_the_variance_of_a_normal_weight_is_the_square_of_its_scale(name, key, x64):
    """The scale that the density and the coordinates tell: raw coordinates are normal, and weights linear in them."""

    def ask(prior, layout, raw, scales):
        gradient = jax.grad(lambda raw: -prior.log_prob(raw, scales, layout))(raw)
        return prior.variances(raw, scales, layout), prior.weights(raw, scales, layout), raw, gradient

    found, weights, raw, gradient = asked(name, key, ask)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, raw)
    np.testing.assert_allclose(ravel(found), ravel(weights) ** 2 / (ravel(raw) * ravel(gradient)), rtol=1e-6)


@pytest.mark.parametrize("name", quick(MIXTURES, ("hierarchical",)))
def test_the_variance_of_a_mixture_is_minus_w_over_the_gradient(name, key, x64):
    def ask(prior, layout, raw, scales):
        weights = prior.weights(raw, scales, layout)
        gradient = jax.grad(lambda w: prior.log_prob(prior.raw(w, scales, layout), scales, layout))(weights)
        return prior.variances(raw, scales, layout), weights, gradient

    found, weights, gradient = asked(name, key, ask)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, weights)
    np.testing.assert_allclose(ravel(found), -ravel(weights) / ravel(gradient), rtol=1e-6)


@pytest.mark.parametrize("name", quick(zoo.FREE, ("spike and slab", "by path")))
def test_heights_are_densities_of_weights_over_the_peaks_of_their_normals(name, key, x64):
    def ask(prior, layout, raw, scales):
        ones = jax.tree.map(jnp.ones_like, raw)
        stretch = jax.jvp(lambda raw: prior.weights(raw, scales, layout), (raw,), (ones,))[1]
        density = prior.log_prob(raw, scales, layout) - jnp.sum(jnp.log(jnp.abs(ravel(stretch))))
        return prior.log_heights(raw, scales, layout), density, prior.variances(raw, scales, layout)

    found, density, variances = asked(name, key, ask)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, variances)
    peaks = -0.5 * np.log(2 * np.pi * np.asarray(ravel(variances)))
    np.testing.assert_allclose(ravel(found).sum() + peaks.sum(), density, rtol=1e-9)


def test_each_part_has_its_own_variances(key):
    def ask(prior, layout, raw, scales):
        return prior.variances(raw, scales, layout), raw, scales

    found, raw, scales = asked("by path", key, ask)
    first, second = found["layers"]
    np.testing.assert_allclose(first["weight"], 0.5 * np.abs(raw["layers"][0]["weight"]), rtol=1e-6)
    np.testing.assert_allclose(second["weight"], 1.0)
    np.testing.assert_allclose(first["bias"], np.exp(2.0 * np.full(4, scales["*/bias"][0])), rtol=1e-6)


@pytest.mark.parametrize(
    ("prior", "mixing"),
    [
        (priors.StudentT(3.0, 0.7), stats.invgamma(1.5, scale=1.5 * 0.7**2)),
        (priors.Laplace(0.5), stats.expon(scale=2 * 0.5**2)),
    ],
    ids=["student-t", "laplace"],
)
def test_the_precision_is_the_one_expected_given_the_weight(prior, mixing, x64):
    r"""That is E[1 / tau^2 | w] by quadrature over the law of tau^2."""
    for w in (-3.0, 0.4, 1.0):

        def moment(power, w=w):
            def integrand(v):
                return v**-power * stats.norm.pdf(w, 0.0, np.sqrt(v)) * mixing.pdf(v)

            return integrate.quad(integrand, 0.0, 1.0)[0] + integrate.quad(integrand, 1.0, np.inf)[0]

        found = prior.variances({"w": jnp.full((1, 1), w)}, (), LAYOUT)["w"][0, 0]
        assert float(found) == pytest.approx(moment(0) / moment(1), rel=1e-6)


class HyperbolicSecant(priors.Independent):
    scale: object = 1.0

    def law(self):
        return dist.TransformedDistribution(dist.HalfCauchy(1.0), dist.transforms.ExpTransform().inv)


AT_ZERO = {
    "normal": (priors.Normal(2.0), 4.0),
    "student-t": (priors.StudentT(3.0, 2.0), 4.0 * 3 / 4),
    "cauchy": (priors.Cauchy(2.0), 2.0),
    "logistic": (priors.Logistic(2.0), 8.0),
    "laplace": (priors.Laplace(2.0), 0.0),
    "of one's own": (HyperbolicSecant(2.0), 4.0),
    "two normals": (priors.TwoNormals(0.5, 2.0, 1.0), 4 / 3),
}


@pytest.mark.parametrize("name", AT_ZERO)
def test_variances_are_finite_at_zero_where_they_have_their_limit(name):
    """In 32 bits, and so have their gradients."""
    prior, wanted = AT_ZERO[name]

    def asked(leaf):
        found = prior.variances(leaf, (), LAYOUT)["w"]
        return jnp.sum(found), found

    gradients, found = jax.jit(jax.grad(asked, has_aux=True))(LEAF)
    np.testing.assert_allclose(found[0, 2], wanted, rtol=1e-4)
    np.testing.assert_allclose(found[1, 0], wanted, rtol=1e-4, atol=1e-5)
    assert np.isfinite(np.asarray(ravel((gradients, found)))).all()


@pytest.mark.slow
def test_a_law_of_ones_own_has_variances_too():
    found = HyperbolicSecant(2.0).variances(LEAF, (), LAYOUT)["w"]
    w = np.asarray(LEAF["w"])[[0, 0, 1, 1], [0, 1, 1, 2]]
    np.testing.assert_allclose(np.asarray(found)[[0, 0, 1, 1], [0, 1, 1, 2]], 2.0 * w / np.tanh(w / 2.0), rtol=1e-4)


@pytest.mark.slow
def test_variances_follow_unknown_scales(x64):
    prior = priors.Normal(dist.HalfNormal(1.0))
    gradient = jax.grad(lambda u: jnp.sum(prior.variances(LEAF, (u,), LAYOUT)["w"]))(jnp.log(0.7))
    assert float(gradient) == pytest.approx(6 * 2 * 0.7**2)


@pytest.mark.parametrize("name", CORRELATED)
def test_correlated_weights_are_refused(name, key):
    prior, weights, layout = bound(name, key)
    kind = type(prior).__name__
    with pytest.raises(tb.InputError, match=f"independent weights.*which Laplace needs; got priors.{kind}. Use priors"):
        prior.variances(weights, (), layout)
    with pytest.raises(tb.InputError, match=f"independent weights.*which Laplace needs; got priors.{kind}. Use priors"):
        prior.log_heights(weights, (), layout)


def test_what_is_no_mixture_of_normals_is_refused():
    for prior in (priors.LogUniform(), priors.LogDensity(lambda weights: jnp.zeros(()))):
        with pytest.raises(tb.InputError, match=f"which Laplace needs; got priors.{type(prior).__name__}"):
            prior.variances(LEAF, (), LAYOUT)


@pytest.mark.slow
def test_filters_have_variances_unless_they_are_smooth(key):
    conv = eqx.nn.Sequential([eqx.nn.Conv2d(3, 5, (3, 2), key=key), eqx.nn.Lambda(lambda x: x.reshape(-1))])
    network = tb.networks.from_equinox(conv)
    weights = network.init(key, jnp.zeros((1, 3, 8, 8)))
    layout = network.layout(weights)
    prior = priors.FilterGroups()
    raw, scales = jax.jit(lambda key: prior.sample(key, weights, layout))(key)
    found = prior.variances(raw, scales, layout)
    (kernel,) = [leaf for leaf in jax.tree.leaves(found) if leaf.shape == (5, 3, 3, 2)]
    wanted = jnp.broadcast_to(jnp.exp(2.0 * scales["filters"]["filter"][0]) / 18, (5, 3, 3, 2))
    np.testing.assert_allclose(kernel, wanted, rtol=1e-5)
    with pytest.raises(tb.InputError, match=r"got priors\.FilterGroups of a length"):
        priors.FilterGroups(length=1.5).variances(raw, scales, layout)
    with pytest.raises(tb.InputError, match=r"got priors\.FilterGroups of a length"):
        priors.FilterGroups(length=1.5).log_heights(raw, scales, layout)


@pytest.mark.slow
def test_gates_have_a_variance_each():
    layout = {"w": tb.networks.Leaf("weight", inputs=(1,), outputs=(0,))}
    prior = priors.Gates(1.0, dist.HalfNormal(1.0), 3.0, 4.0)
    found = prior.variances({"w": jnp.ones((8, 3))}, (jnp.log(2.0),), layout)["w"]
    np.testing.assert_allclose(found, np.tile(np.repeat([1.0, 4.0, 9.0, 16.0], 2)[:, None], (1, 3)), rtol=1e-6)


@pytest.mark.parametrize("name", quick(zoo.PRIORS, ("spike and slab", "by path")))
def test_the_density_of_scales_without_the_jacobian_is_that_of_their_values(name, key, x64):
    """All are logarithms but the share of a spike and slab, a logit."""

    def ask(prior, layout, raw, scales):
        return prior.log_hyper(scales) - prior.log_hyper(scales, jacobian=False), scales

    difference, scales = asked(name, key, ask)
    real = np.concatenate([np.ravel(u) for u in jax.tree.leaves(scales)] or [np.zeros(0)])
    log_derivative = log_expit(real) + log_expit(-real) if name == "spike and slab" else real
    assert float(difference) == pytest.approx(log_derivative.sum(), abs=1e-9)


def test_a_half_cauchy_has_its_density_without_the_jacobian_however_far(x64):
    law = dist.HalfCauchy(2.0)
    u = jnp.array([-3.0, 0.0, 4.0])
    found = transforms.log_prob(law, (u,), jacobian=False)
    assert float(found) == pytest.approx(stats.halfcauchy(scale=2.0).logpdf(np.exp(np.asarray(u))).sum())
    far = transforms.log_prob(law, (jnp.asarray(60.0, jnp.float32),), jacobian=False)
    assert float(far) == pytest.approx(np.log(2 / np.pi) + np.log(2.0) - 120.0, rel=1e-5)
