import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import ndtr
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso

import tunbridge as tb
import zoo
from toys import equal, quick
from tunbridge import priors
from tunbridge.core import memory
from tunbridge.core.tree import ravel, size
from tunbridge.core.types import Prior
from tunbridge.model import spec

NETWORK = tb.networks.MLP((4,), outputs=2)
X = jnp.zeros((1, 3))
PRIORS = {
    "one": (tb.priors.Normal(2.0), [2.0, 2.0, 2.0, 2.0]),
    "fan-in": (tb.priors.Normal(tb.priors.fan_in(2.0)), [2.0, 2.0 / np.sqrt(3), 2.0, 1.0]),
    "per layer": (tb.priors.Normal((1.0, 0.5)), [1.0, 1.0, 0.5, 0.5]),
    "per layer fan-in": (tb.priors.Normal((3, tb.priors.fan_in(1.0))), [3.0, 3.0, 1.0, 0.5]),
}


def _weights(key):
    weights = jax.jit(NETWORK.init)(key, X)
    return weights, NETWORK.layout(weights)


@pytest.mark.parametrize("name", PRIORS)
def test_normal_log_prob_is_scipys(name, key, x64):
    prior, sds = PRIORS[name]
    weights, layout = _weights(key)
    wanted = sum(
        stats.norm(0, s).logpdf(np.asarray(leaf)).sum() for s, leaf in zip(sds, jax.tree.leaves(weights), strict=True)
    )
    assert float(prior.log_prob(weights, (), layout)) == pytest.approx(wanted, abs=1e-9)
    assert prior.weights(weights, (), layout) is weights


@pytest.mark.parametrize("name", PRIORS)
def test_normal_samples_have_the_density(name, key):
    """Kolmogorov-Smirnov at level 1e-4 a leaf: false alarms 0.16 % over all 16, with a fixed key."""
    prior, sds = PRIORS[name]
    weights, layout = _weights(key)
    draws, _ = jax.vmap(lambda k: prior.sample(k, weights, layout))(jax.random.split(key, 500))
    for leaf, sd in zip(jax.tree.leaves(draws), sds, strict=True):
        assert stats.kstest(np.asarray(leaf).ravel() / sd, "norm").pvalue > 1e-4


def test_an_unknown_scale_is_non_centred_and_has_its_own_density(key, x64):
    prior = tb.priors.Normal(tb.priors.fan_in(dist.HalfNormal(2.0)))
    weights, layout = _weights(key)
    scales = (jnp.log(jnp.asarray(0.7)),)
    assert float(prior.log_prob(weights, scales, layout)) == pytest.approx(
        stats.norm.logpdf(np.asarray(ravel(weights))).sum(), abs=1e-9
    )
    made = prior.weights(weights, scales, layout)
    np.testing.assert_allclose(made["layers"][0]["weight"], weights["layers"][0]["weight"] * 0.7 / np.sqrt(3))
    np.testing.assert_allclose(ravel(prior.raw(made, scales, layout)), ravel(weights), rtol=1e-12)
    wanted = stats.halfnorm(scale=2.0).logpdf(0.7) + np.log(0.7)
    assert float(prior.log_hyper(scales)) == pytest.approx(wanted, abs=1e-9)


def test_unknown_scales_integrate_to_one_with_the_jacobian(x64):
    prior = tb.priors.Normal(dist.Gamma(2.0, 1.0))
    grid = jnp.linspace(-15, 5, 20001)
    density = jax.vmap(lambda u: prior.log_hyper((u,)))(grid)
    assert float(jnp.trapezoid(jnp.exp(density), grid)) == pytest.approx(1.0, abs=1e-6)


def test_unknown_scales_are_held_at_their_medians(x64):
    for prior, median in (
        (dist.HalfNormal(2.0), stats.halfnorm(scale=2.0).median()),
        (dist.Gamma(0.5, 1.0), stats.gamma(0.5).median()),
        (dist.HalfCauchy(1.0), 1.0),
        (dist.LogNormal(0.3, 1.0), np.exp(0.3)),
        (dist.Uniform(0.5, 2.0), 1.25),
    ):
        (u,) = tb.priors.Normal(prior).median_scales({}, {})
        value = dist.biject_to(prior.support)(u)
        assert float(value) == pytest.approx(median, rel=1e-6)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tb.priors.Normal(0.0), "scale above 0"),
        (lambda: tb.priors.Normal(-1), "scale above 0"),
        (lambda: tb.priors.Normal((1.0, -2.0)), "scale above 0"),
        (lambda: tb.priors.Normal("wide"), "a positive number or a numpyro distribution"),
        (lambda: tb.priors.fan_in(-1.0), "scale above 0"),
        (lambda: tb.priors.Normal(dist.Normal(0.0, 1.0)), "positive values only"),
    ],
)
def test_bad_scales_are_refused(make, said):
    with pytest.raises(tb.InputError, match=said):
        make()


def test_fan_in_without_a_layout_is_refused_by_name(key):
    network = tb.networks.from_functions(lambda k, x: {"slope": jnp.zeros((1, 1))}, lambda w, x: x @ w["slope"])
    data = tb.Data([[1.0]], [1.0])
    bad = tb.Model(network, tb.priors.Normal(tb.priors.fan_in(1.0)), tb.likelihoods.Gaussian(1.0))
    with pytest.raises(tb.InputError, match=r"which priors\.fan_in needs; got none for slope"):
        tb.MAP().fit(bad, data, key=key)
    good = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(1.0))
    tb.MAP(train=tb.Train(2)).fit(good, data, key=key)


def test_a_wrong_number_of_layer_scales_is_refused(key):
    model = tb.Model(tb.networks.MLP((3,)), tb.priors.Normal((1.0, 1.0, 1.0)), tb.likelihoods.Gaussian(1.0))
    with pytest.raises(tb.InputError, match="one scale per layer, 2 for layers/0, layers/1; got 3"):
        tb.MAP().fit(model, tb.Data([[1.0]], [1.0]), key=key)


@pytest.mark.parametrize("scale", [np.array([1.0, 0.5]), dist.HalfNormal(1.0).expand([2])])
def test_a_scale_that_is_not_one_number_is_refused(scale, key):
    model = tb.Model(tb.networks.MLP((3,)), tb.priors.Normal(scale), tb.likelihoods.Gaussian(1.0))
    with pytest.raises(tb.InputError, match=r"one number per scale; got shape \(2,\)"):
        tb.MAP().fit(model, tb.Data([[1.0]], [1.0]), key=key)


ONE = tb.networks.from_functions(lambda k, x: {"w": jnp.zeros((1, 1))}, lambda w, x: x @ w["w"])
"""A network of one weight."""
WEIGHT = {"w": jnp.zeros((1, 1))}
LAYOUT = ONE.layout(WEIGHT)
LAWS = {
    "normal": priors.Normal(2.0),
    "laplace": priors.Laplace(0.5),
    "student-t": priors.StudentT(3.0, 0.7),
    "cauchy": priors.Cauchy(0.5),
    "logistic": priors.Logistic(0.5),
    "two normals": priors.TwoNormals(0.3, 1.0, 0.05),
    "spike and slab": priors.SpikeAndSlab(0.3, 1.0, 0.05),
}
SCIPY = {
    "laplace": stats.laplace(scale=0.5),
    "student-t": stats.t(3, scale=0.7),
    "cauchy": stats.cauchy(scale=0.5),
    "logistic": stats.logistic(scale=0.5),
}


@pytest.mark.parametrize("name", SCIPY)
def test_the_density_of_many_weights_is_the_product_of_scipys(name, key, x64):
    weights, layout = _weights(key)
    wanted = sum(SCIPY[name].logpdf(np.asarray(leaf)).sum() for leaf in jax.tree.leaves(weights))
    found = jax.jit(lambda weights: LAWS[name].log_prob(weights, (), layout))(weights)
    assert float(found) == pytest.approx(wanted, abs=1e-9)


MIXTURES = {
    "inverse-gamma variance": (
        priors.ScaleMixture(dist.InverseGamma(2.0, 3.0), squared=True),
        stats.t(4, scale=1.5**0.5),
    ),
    "exponential variance": (priors.ScaleMixture(dist.Exponential(2.0), squared=True), stats.laplace(scale=0.5)),
    "half-cauchy": (priors.ScaleMixture(dist.HalfCauchy(1.0)), None),
    "gamma": (priors.ScaleMixture(dist.Gamma(2.0, 1.0)), None),
    "log-normal": (priors.ScaleMixture(dist.LogNormal(0.0, 1.0)), None),
    "weibull": (priors.ScaleMixture(dist.Weibull(1.0, 0.7)), None),
    "horseshoe": (priors.Horseshoe(1.0), None),
    "regularised horseshoe": (priors.Horseshoe(1.0, slab=2.0), None),
}


def _draws(prior, key, num=20_000):
    raw, scales = jax.jit(jax.vmap(lambda k: prior.sample(k, WEIGHT, LAYOUT)))(jax.random.split(key, num))
    return np.asarray(jax.vmap(lambda r, s: prior.weights(r, s, LAYOUT))(raw, scales)["w"]).ravel()


@pytest.mark.parametrize("name", quick(LAWS, ("laplace", "spike and slab")))
def test_a_law_is_normalised_and_its_samples_have_its_density(name, key, x64):
    """Quadrature to 1e-4 of mass; Kolmogorov-Smirnov at level 1e-4: false alarms 0.07 % over all, with a fixed key."""
    prior = LAWS[name]
    u = np.linspace(-22.0, 22.0, 40_001)
    grid = np.sinh(u) * 1e-3
    density = jax.vmap(lambda w: prior.log_prob({"w": w.reshape(1, 1)}, (), LAYOUT))(jnp.asarray(grid))
    mass = np.exp(np.asarray(density)) * 1e-3 * np.cosh(u) * (u[1] - u[0])
    assert mass.sum() == pytest.approx(1.0, abs=1e-4)
    draws = _draws(prior, key)
    assert stats.kstest(draws, lambda w: np.interp(w, grid, np.cumsum(mass))).pvalue > 1e-4


@pytest.mark.parametrize("name", quick(MIXTURES, ("regularised horseshoe",)))
def test_two_stage_samplers_have_their_marginals(name, key, x64):
    """Scales are integrated by quadrature over the prior's own density of them; KS at level 1e-4, as above."""
    prior, closed = MIXTURES[name]
    u = jnp.linspace(-25.0, 25.0, 20_001)
    weight = np.exp(np.asarray(jax.vmap(lambda v: prior.log_hyper({"local": (v.reshape(1, 1),)}))(u))) * (u[1] - u[0])
    assert weight.sum() == pytest.approx(1.0, abs=1e-6)
    scale = jax.vmap(lambda v: prior.scale_of(WEIGHT, {"local": (v.reshape(1, 1),)}, LAYOUT)["w"])(u).ravel()
    scale = np.asarray(scale)
    draws = np.sort(_draws(prior, key))
    nodes = np.concatenate([draws[::200], draws[-1:]])
    cdf = np.array([np.sum(weight * ndtr(w / scale)) for w in nodes])
    assert stats.kstest(draws, lambda w: np.interp(w, nodes, cdf)).pvalue > 1e-4
    if closed is not None:
        for w in (0.01, 0.3, 1.7, 10.0):
            integral = np.sum(weight * stats.norm(0, scale).pdf(w))
            assert integral == pytest.approx(closed.pdf(w), rel=1e-6)
            marginal = prior.marginal().log_prob({"w": jnp.full((1, 1), w)}, (), LAYOUT)
            assert float(marginal) == pytest.approx(closed.logpdf(w), abs=1e-9)


def test_an_inverse_gamma_is_of_the_variance():
    """Integrated over the variance, not the deviation: the density at 1.7 with a = 2, b = 3."""
    prior = priors.ScaleMixture(dist.InverseGamma(2.0, 3.0), squared=True).marginal()
    assert float(jnp.exp(prior.log_prob({"w": jnp.full((1, 1), 1.7)}, (), LAYOUT))) == pytest.approx(0.11458, abs=1e-5)


def test_a_common_scale_stays_in_front_of_a_marginal(x64):
    mixing = dist.InverseGamma(2.0, 3.0)
    known = priors.ScaleMixture(mixing, True, scale=2.0).marginal()
    assert float(known.scale) == pytest.approx(2.0 * 1.5**0.5)
    wide = priors.ScaleMixture(mixing, True, scale=priors.fan_in(2.0)).marginal()
    assert float(wide.scale.scale) == pytest.approx(2.0 * 1.5**0.5)
    unknown = priors.ScaleMixture(mixing, True, scale=dist.HalfNormal(1.0)).marginal()
    assert isinstance(unknown, priors.Hierarchical)


def test_the_horseshoe_shrinks_all_or_nothing(key):
    """1 / (1 + lambda^2) is Beta(1/2, 1/2); KS at level 1e-4, with a fixed key."""
    _, scales = jax.vmap(lambda k: priors.Horseshoe(1.0).sample(k, WEIGHT, LAYOUT))(jax.random.split(key, 5000))
    kappa = 1.0 / (1.0 + np.exp(2.0 * np.asarray(scales["local"][0]).ravel()))
    assert stats.kstest(kappa, stats.beta(0.5, 0.5).cdf).pvalue > 1e-4


def _zoo(name, key):
    weights = jax.jit(zoo.NETWORK.init)(key, X)
    layout = zoo.NETWORK.layout(weights)
    return zoo.PRIORS[name].bind(weights, layout), weights, layout


@pytest.mark.parametrize("name", quick(zoo.PRIORS, zoo.QUICK))
def test_every_prior_keeps_the_protocol_and_has_finite_gradients_at_zero_and_far_away(name, key):
    prior, weights, layout = _zoo(name, key)
    assert isinstance(prior, Prior)
    assert prior.proper

    def ask(prior, key):
        raw, scales = prior.sample(key, weights, layout)
        made = prior.weights(raw, scales, layout)
        medians = prior.median_scales(weights, layout)

        def density(raw, scales):
            return prior.log_prob(raw, scales, layout) + prior.log_hyper(scales)

        def gradient(far):
            return jax.grad(density, argnums=(0, 1))(jax.tree.map(lambda leaf: jnp.full_like(leaf, far), raw), medians)

        gradients = jax.vmap(gradient)(jnp.array([0.0, 1e6, -1e6]))
        back = prior.raw(made, scales, layout)
        return raw, back, scales, medians, prior.values(scales), density(raw, scales), gradients

    raw, back, scales, medians, values, density, gradients = jax.jit(ask)(prior, key)
    assert jax.tree.map(jnp.shape, raw) == jax.tree.map(jnp.shape, weights)
    assert jax.tree.map(jnp.shape, medians) == jax.tree.map(jnp.shape, scales)
    assert jax.tree.structure(medians) == jax.tree.structure(scales)
    np.testing.assert_allclose(ravel(back), ravel(raw), rtol=1e-4)
    assert all((np.asarray(value) > 0).all() for value in jax.tree.leaves(values))
    assert np.isfinite(np.asarray(ravel((density, gradients)))).all()


@pytest.mark.parametrize("name", zoo.PRIORS)
def test_every_prior_can_be_written_and_read(name, key):
    for prior in (zoo.PRIORS[name], _zoo(name, key)[0]):
        encoder = spec.Encoder()
        text = encoder.encode(prior)
        assert equal(spec.Decoder(encoder.arrays).decode(text), prior)


def test_a_prior_of_ones_own_is_a_few_lines(key, x64):
    class HyperbolicSecant(priors.Independent):
        scale: object = 1.0

        def law(self):
            return dist.TransformedDistribution(dist.HalfCauchy(1.0), dist.transforms.ExpTransform().inv)

    weights, layout = _weights(key)
    prior = HyperbolicSecant(2.0)
    wanted = stats.hypsecant(scale=2.0).logpdf(np.asarray(ravel(weights))).sum()
    assert float(prior.log_prob(weights, (), layout)) == pytest.approx(wanted, abs=1e-9)
    assert isinstance(prior, Prior)


def test_a_joint_normal_is_scipys_and_couples_layers(key, x64):
    weights, layout = _weights(key)
    covariance = zoo._covariance(size(weights))
    prior = priors.JointNormal(lambda num: covariance[:num, :num]).bind(weights, layout)
    wanted = stats.multivariate_normal(np.zeros(len(covariance)), covariance).logpdf(np.asarray(ravel(weights)))
    found = jax.jit(lambda weights: prior.log_prob(weights, (), layout))(weights)
    assert float(found) == pytest.approx(wanted, abs=1e-8)
    draw = jax.jit(jax.vmap(lambda k: ravel(prior.sample(k, weights, layout)[0])))
    draws = draw(jax.random.split(key, 100_000))
    error = np.linalg.norm(np.cov(np.asarray(draws).T) - covariance) / np.linalg.norm(covariance)
    assert error < 0.02


def test_a_joint_normal_too_large_is_refused_with_its_bytes(key, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 10_000)
    model = tb.Model(tb.networks.MLP((50,)), priors.JointNormal(np.eye), tb.likelihoods.Gaussian(1.0))
    with pytest.raises(tb.InputError, match=r"151 weights, so 151\^2 \* 8 = 182,408 bytes"):
        tb.MAP().fit(model, tb.Data([[1.0]], [1.0]), key=key)


@pytest.mark.parametrize("name", quick(("full", "matrix", "low rank"), ("low rank",)))
def test_correlated_priors_have_the_covariance_they_claim(name, key, x64):
    """Of the first layer, from 1e5 draws; errors of 1 % of the norm are the Monte Carlo error of 16 weights."""
    prior, weights, layout = _zoo(name, key)
    draw = jax.jit(jax.vmap(lambda k: ravel(prior.sample(k, weights, layout)[0]["layers"][0])))
    draws = draw(jax.random.split(key, 100_000))
    found = np.cov(np.asarray(draws).T)
    if name == "full":
        wanted = np.asarray(prior.covariance[0])
    elif name == "low rank":
        wanted = 2.0 * np.ones((16, 16)) + 0.25 * np.eye(16)
    else:
        wanted = 0.49 * np.eye(16)
        wanted[4:, 4:] = 0.49 * np.kron(np.asarray(priors.Smooth(1.5)(3)), np.eye(4))
    assert np.linalg.norm(found - wanted) < 0.015 * np.linalg.norm(wanted)
    zero = jax.tree.map(np.zeros_like, weights)
    first = eqx.tree_at(lambda tree: tree["layers"][0], zero, weights["layers"][0])
    w = np.asarray(ravel(weights["layers"][0]))
    density = jax.jit(lambda weights: prior.log_prob(weights, (), layout))
    gap = float(density(first) - density(zero))
    assert gap == pytest.approx(-0.5 * w @ np.linalg.solve(wanted, w), rel=1e-4)


@pytest.mark.slow
def test_patterns_are_tried_in_order_and_one_that_matches_nothing_is_refused(key):
    weights, layout = _weights(key)
    prior = priors.ByPath({"layers/0/*": priors.Laplace(2.0), "*/bias": priors.Cauchy(1.0)}, default=priors.Normal(3.0))
    assert prior.assign(layout) == ["layers/0/*", "layers/0/*", "*/bias", "default"]
    bias, weight = (weights["layers"][1][name] for name in ("bias", "weight"))
    first = jax.tree.leaves(weights["layers"][0])
    wanted = sum(stats.laplace(scale=2.0).logpdf(np.asarray(leaf)).sum() for leaf in first)
    wanted += stats.cauchy.logpdf(np.asarray(bias)).sum() + stats.norm(0, 3.0).logpdf(np.asarray(weight)).sum()
    assert float(prior.log_prob(weights, (), layout)) == pytest.approx(wanted, rel=1e-5)
    for pattern in ("layer/0/weight", "layers/0/weight"):
        wrong = priors.ByPath({"layers/0/*": priors.Laplace(1.0), pattern: priors.Normal(1.0)})
        with pytest.raises(tb.InputError, match="layers/0/bias, layers/0/weight, layers/1/bias, layers/1/weight"):
            wrong.bind(weights, layout)


def test_group_scales_are_shared_along_the_right_axes(key):
    weights, layout = _weights(key)
    for prior, shapes in (
        (priors.GroupHorseshoe(), [(1,), (3, 1), (1,), (4, 1)]),
        (priors.GroupHorseshoe(over="outputs"), [(4,), (1, 4), (2,), (1, 2)]),
        (priors.Horseshoe(), [(4,), (3, 4), (2,), (4, 2)]),
    ):
        _, scales = prior.sample(key, weights, layout)
        assert [leaf.shape for leaf in scales["local"]] == shapes


def test_ard_has_one_scale_an_input(key):
    weights, layout = _weights(key)
    _, scales = priors.ARD().sample(key, weights, layout)
    assert [leaf.shape for leaf in scales["inputs"]["relevance"]] == [(3, 1)]
    with pytest.raises(tb.InputError, match="path= as one of layers/0/bias"):
        priors.ARD(path="first").bind(weights, layout)


@pytest.mark.slow
def test_filters_share_a_scale_and_are_smooth(key):
    """Neighbours in a window have the correlation exp(-1 / 2 l^2), within 4 standard errors of 4,000 windows."""
    conv = eqx.nn.Sequential([eqx.nn.Conv2d(3, 5, (3, 2), key=key), eqx.nn.Lambda(lambda x: x.reshape(-1))])
    network = tb.networks.from_equinox(conv)
    weights = network.init(key, jnp.zeros((1, 3, 8, 8)))
    layout = network.layout(weights)
    prior = priors.FilterGroups(dist.HalfCauchy(1.0), length=1.5).bind(weights, layout)
    raw, scales = jax.jit(jax.vmap(lambda k: prior.sample(k, weights, layout)))(jax.random.split(key, 800))
    (local,) = scales["filters"]["filter"]
    assert local.shape == (800, 5, 1, 1, 1)
    made = jax.vmap(lambda r, s: prior.weights(r, s, layout))(raw, scales)
    (kernel,) = [leaf for leaf in jax.tree.leaves(made) if leaf.ndim == 5]
    unit = np.asarray(kernel / jnp.exp(local)) * np.sqrt(18)
    correlation = np.mean(unit[..., :2, :] * unit[..., 1:, :])
    assert correlation == pytest.approx(np.exp(-1 / (2 * 1.5**2)), abs=4 * 1.4 / np.sqrt(800 * 15))
    back = jax.vmap(lambda w, s: prior.raw(w, s, layout))(made, scales)
    np.testing.assert_allclose(ravel(back), ravel(raw), rtol=2e-2, atol=2e-3)
    dense = tb.networks.MLP((2,), outputs=1)
    w = jax.jit(dense.init)(key, X)
    with pytest.raises(tb.InputError, match="the kernel of a convolution"):
        priors.FilterGroups().bind(w, dense.layout(w))


@pytest.mark.slow
def test_gates_have_scales_of_their_own(key):
    cell = eqx.nn.LSTMCell(3, 5, key=key)
    weights = {"cell": {"hh": cell.weight_hh, "ih": cell.weight_ih, "bias": cell.bias}}
    kinds = [tb.networks.Leaf("bias", outputs=(0,)), *[tb.networks.Leaf("weight", (1,), (0,))] * 2]
    layout = {"cell": dict(zip(("bias", "hh", "ih"), kinds, strict=True))}
    prior = priors.Gates(input=1.0, forget=dist.HalfNormal(1.0), cell=3.0, output=4.0).bind(weights, layout)
    raw, scales = prior.sample(key, weights, layout)
    made = prior.weights(raw, (jnp.log(2.0),), layout)
    for name in ("bias", "hh", "ih"):
        ratio = np.asarray(made["cell"][name] / raw["cell"][name]).reshape(20, -1)
        np.testing.assert_allclose(ratio, np.repeat([1.0, 2.0, 3.0, 4.0], 5)[:, None] * np.ones_like(ratio), rtol=1e-5)
    assert list(prior.values(scales)) == ["forget"]


def test_inclusion_probabilities_are_bayes_rule(x64):
    prior = priors.SpikeAndSlab(0.2, 1.0, 0.1)
    w = np.array([[0.0, 0.1, 0.3, 2.0]])
    slab, spike = 0.2 * stats.norm(0, 1.0).pdf(w), 0.8 * stats.norm(0, 0.1).pdf(w)
    np.testing.assert_allclose(prior.inclusion(jnp.asarray(w)), slab / (slab + spike), rtol=1e-9)


def test_the_log_uniform_is_refused_and_its_divergence_is_right(key, x64):
    """Within 0.02 nats of a quadrature for log alpha from -8 to 8, up to its constant."""
    model = tb.Model(tb.networks.MLP((2,)), priors.LogUniform(), tb.likelihoods.Gaussian(1.0))
    for method in (tb.MAP(), tb.NUTS(), tb.TemperedSMC(), tb.Ensemble(), tb.SWAG(), tb.MCDropout()):
        with pytest.raises(tb.InputError, match="a proper prior; got LogUniform, whose posterior is improper too"):
            method.fit(model, tb.Data([[1.0]], [1.0]), key=key)
    log_alpha = np.linspace(-8.0, 8.0, 33)
    t = np.linspace(-45.0, 8.0, 40_001)  # |1 + root alpha e| = exp(t), on both sides

    def divergence(a):
        root = np.exp(0.5 * a)
        density = sum(stats.norm.pdf((side * np.exp(t) - 1.0) / root) / root for side in (1.0, -1.0)) * np.exp(t)
        return -0.5 * a + np.trapezoid(density * t, t)

    exact = np.array([divergence(a) for a in log_alpha])
    gap = np.asarray(priors.LogUniform.kl(jnp.asarray(log_alpha))) - exact
    assert np.ptp(gap) < 0.04
    assert np.abs(gap - gap[-1]).max() < 0.02


def test_the_mode_under_laplace_is_the_lasso_with_its_zeros(key, x64):
    x, y = load_diabetes(return_X_y=True)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    sigma, fit = 0.7, tb.MAP(step_size=0.02, train=tb.Train(2000)).fit
    counts = []
    for b in (0.002, 0.005, 0.02, 0.1):
        free_bias = priors.ByPath({"*/bias": priors.Normal(100.0)}, default=priors.Laplace(b))
        model = tb.Model(tb.networks.MLP(()), free_bias, tb.likelihoods.Gaussian(sigma))
        found = fit(model, tb.Data(x, y), key=key, progress=False).params.weights["layers"][0]["weight"][:, 0]
        lasso = Lasso(alpha=sigma**2 / (len(y) * b), tol=1e-12, max_iter=100_000).fit(x, y).coef_
        np.testing.assert_allclose(found, lasso, atol=1e-4)
        assert ((np.asarray(found) == 0) == (lasso == 0)).all()
        counts.append(int((lasso == 0).sum()))
    assert counts[0] > counts[-1] > 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: priors.StudentT(-1.0), "df above 0"),
        (lambda: priors.StudentT(dist.Gamma(1.0, 1.0)), "df as a number"),
        (lambda: priors.TwoNormals(1.5), "a share between 0 and 1"),
        (lambda: priors.TwoNormals(dist.Beta(1.0, 1.0)), "a known share"),
        (lambda: priors.ScaleMixture(1.0), "mixing= as one numpyro distribution"),
        (lambda: priors.ScaleMixture(dist.Normal(0.0, 1.0)), "positive values only"),
        (lambda: priors.Horseshoe((1.0, 2.0)), "one scale for all layers"),
        (lambda: priors.GroupHorseshoe(over="rows"), "over= as one of 'inputs', 'outputs'"),
        (lambda: priors.Hierarchical(priors.Normal(1.0), 2.0), "an unknown scale"),
        (lambda: priors.Hierarchical(3.0, dist.HalfNormal(1.0)), "prior= as a prior with the methods"),
        (lambda: priors.ByPath({}), "a dictionary of patterns"),
        (lambda: priors.ByPath({"*": 1.0}), "each value a prior with the methods"),
        (lambda: priors.FullNormal(np.ones((2, 3))), "a square matrix"),
        (lambda: priors.FullNormal(np.ones((2, 2))), "positive eigenvalues"),
        (lambda: priors.JointNormal([[1.0, 0.5], [0.0, 1.0]]), "a symmetric matrix"),
        (lambda: priors.LowRankNormal(np.ones(3)), r"shape \(weights, rank\)"),
        (lambda: priors.LowRankNormal(np.ones((3, 1)), 0.0), "a scale above 0"),
    ],
)
def test_bad_arguments_are_refused(make, said):
    with pytest.raises(tb.InputError, match=said):
        make()


@pytest.mark.parametrize(
    "prior", [priors.FullNormal(np.eye(5)), priors.LowRankNormal(np.ones((5, 1))), priors.JointNormal(np.eye(5))]
)
def test_a_covariance_of_another_size_is_refused(prior, key):
    weights, layout = _weights(key)
    with pytest.raises(tb.InputError, match=r"for the (16|26) weights of .*; got one for 5"):
        prior.bind(weights, layout)
