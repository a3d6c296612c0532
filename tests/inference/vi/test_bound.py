"""The KL is a sum with the right value; the bound and the KL to the posterior make up the evidence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import tunbridge as tb
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.inference.vi.spreads import Diagonal

KL = tb.divergences.KL
ONE = tb.networks.from_functions(
    lambda key, x: {"w": jnp.zeros(())}, lambda weights, x: weights["w"] * x, layout={"w": tb.networks.Leaf("bias")}
)
ROWS = tb.Data(np.array([[0.5], [1.0], [-2.0]]), np.array([0.3, 1.0, -1.5]))
PRIORS = {
    "normal": (tb.priors.Normal(1.3), stats.norm(0, 1.3).pdf),
    "laplace": (tb.priors.Laplace(0.7), stats.laplace(0, 0.7).pdf),
    "two normals": (
        tb.priors.TwoNormals(0.4, 1.0, 0.1),
        lambda w: 0.4 * stats.norm(0, 1.0).pdf(w) + 0.6 * stats.norm(0, 0.1).pdf(w),
    ),
}


def _one(mean, sd):
    return Gaussian(tb.Params({"w": jnp.asarray(mean)}), (Diagonal.of(jnp.asarray(sd)),), ((0,),))


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("closed", [True, False])
def test_the_kl_is_that_of_numerical_integration(name, closed, x64):
    """Closed forms to 1e-6, draws within 4 standard errors (a false alarm once in 16,000)."""
    prior, density = PRIORS[name]
    model, _ = tb.Model(ONE, prior, tb.likelihoods.Gaussian(1.0)).bind(ROWS)
    q, law = _one(0.4, 0.3), stats.norm(0.4, 0.3)
    exact, _ = integrate.quad(lambda w: law.pdf(w) * (law.logpdf(w) - np.log(density(w))), -2.2, 3.0, limit=200)
    divergence, target = KL(closed=closed).bind(model, q.mean), tb.Target(model, 3.0)
    assert divergence.normal == (closed and name == "normal")

    @jax.jit
    def draw(keys):
        draws = jax.vmap(lambda k: divergence.sampled(target, q, q.sample(k)))(keys)
        return -(draws + divergence.direct(target, q))

    found = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))
    error = found.std() / 4000**0.5
    assert abs(found.mean() - exact) < 4 * error + 1e-6
    assert (error < 1e-12) == divergence.normal


def test_the_kl_is_a_sum_over_weights_not_a_mean():
    network = tb.networks.MLP((7,), outputs=2)
    data = tb.Data(np.zeros((4, 3)), np.zeros((4, 2)))
    model, _ = tb.Model(network, tb.priors.Normal(0.5), tb.likelihoods.Gaussian(1.0)).bind(data)
    weights = jax.jit(network.init)(jax.random.key(0), data.x)
    params = tb.Params(weights)
    divergence, target = KL().bind(model, params), tb.Target(model, 4.0)

    @jax.jit
    def found(params):
        sds = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.1), params)
        q = tb.families.Diagonal().around(jax.random.key(0), params, sds, network.layout(weights))
        return -divergence.direct(target, q)

    w = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(weights)]).astype(np.float64)
    exact = np.sum(np.log(0.5 / 0.1) + (0.1**2 + w**2) / (2 * 0.5**2) - 0.5)
    np.testing.assert_allclose(found(params), exact, rtol=1e-5)


@pytest.mark.parametrize("num", [1, 7, 1000])
@pytest.mark.parametrize("weights", [tb.klweights.Uniform(), tb.klweights.Geometric()], ids=["uniform", "geometric"])
def test_kl_weights_add_up_to_one_over_an_epoch(num, weights):
    shares = np.asarray(weights.share(jnp.arange(num), jnp.asarray(float(num))))
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(), 1.0, rtol=1e-5)


def test_geometric_weights_are_the_papers():
    shares = tb.klweights.Geometric().share(jnp.arange(5), jnp.asarray(5.0))
    np.testing.assert_allclose(shares, [2 ** (5 - i) / (2**5 - 1) for i in range(1, 6)], rtol=1e-6)


def test_tempered_weights_are_a_factor():
    np.testing.assert_allclose(tb.klweights.Tempered(0.1).share(jnp.arange(4), jnp.asarray(4.0)), 0.025, rtol=1e-6)
    with pytest.raises(tb.InputError, match="above 0"):
        tb.klweights.Tempered(0.0)


def _gaussian_kl(mean, covariance, other_mean, other):
    inverse, off = np.linalg.inv(other), other_mean - mean
    logs = np.linalg.slogdet(other)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * (np.trace(inverse @ covariance) + off @ inverse @ off - len(mean) + logs)


@pytest.mark.parametrize("family", [tb.families.Diagonal(), tb.families.Full()], ids=["diagonal", "full"])
def test_bound_and_kl_to_the_posterior_make_up_the_log_evidence(family, x64):
    """For any q on a conjugate model: to 1e-3 where it is the posterior, else within 4 standard errors."""
    problem = tb.bench.truth.exact.linear()
    phi = np.column_stack([problem.data.x, np.ones(problem.data.num)])
    precision = phi.T @ phi / 0.5**2 + np.eye(3) / 1.5**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ phi.T @ np.ravel(problem.data.y) / 0.5**2
    params = tb.Params({"layers": [{"weight": jnp.asarray(mean[:2, None]), "bias": jnp.asarray(mean[2:])}]})
    sds = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.15), params)
    model, _ = problem.model.bind(problem.data)
    q = family.around(jax.random.key(0), params, sds, model.network.layout(params.weights))
    dense = np.eye(3) * 0.15**2
    if isinstance(family, tb.families.Full):  # its vector has the bias first
        order = np.ix_([2, 0, 1], [2, 0, 1])
        root = np.linalg.cholesky(covariance[order])
        spread = type(q.spreads[0])(
            jnp.asarray(np.log(np.expm1(np.diag(root)))), jnp.asarray(np.sqrt(3.0) * root / np.diag(root)[:, None])
        )
        q, dense = Gaussian(params, (spread,), q.groups), covariance
    bound = tb.VariationalGaussian(model, jax.random.key(0), q).elbo(problem.data, num=1000)
    kl = _gaussian_kl(mean, dense, mean, covariance)
    off = abs(bound.value + kl - problem.log_evidence)
    assert off < (1e-3 if isinstance(family, tb.families.Full) else 4 * bound.error)
    assert bound.error < (1e-6 if isinstance(family, tb.families.Full) else 0.2)


def test_the_bound_of_two_weights_is_that_of_quadrature(x64):
    """Logistic regression with 2 weights: the expected log likelihood on a grid of Gauss-Hermite nodes."""
    problem = tb.bench.truth.exact.logistic()
    model, data = problem.model.bind(problem.data)
    params = tb.Params({"w": jnp.array([0.4, -0.3])})
    q = Gaussian(params, (Diagonal.of(jnp.array([0.5, 0.3])),), ((0,),))
    nodes, weight = np.polynomial.hermite_e.hermegauss(40)
    grid = np.array([(a, b) for a in nodes for b in nodes]) * [0.5, 0.3] + [0.4, -0.3]
    product = np.outer(weight, weight).ravel() / (2 * np.pi)
    target = tb.Target(model, float(data.num))
    values = jax.jit(jax.vmap(lambda w: target.log_density(tb.Params({"w": w}), data)))
    exact = product @ np.asarray(values(jnp.asarray(grid))) + float(q.entropy())
    bound = tb.VariationalGaussian(model, jax.random.key(0), q).elbo(problem.data, num=2000)
    assert abs(bound.value - exact) < 4 * bound.error
    assert bound.value < problem.log_evidence
    np.testing.assert_allclose(bound.value, bound.log_likelihood - bound.kl, atol=0.2)
