"""Spreads against dense linear algebra, families against their counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tunbridge as tb
from tunbridge.inference.vi import spreads
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.inference.vi.positive import inverse_softplus, softplus, sum_log


def test_softplus_is_positive_and_right_over_its_whole_range():
    rho = np.linspace(-50.0, 50.0, 1001).astype(np.float32).astype(np.float64)
    exact = np.where(rho > 0, rho + np.log1p(np.exp(-np.abs(rho))), np.log1p(np.exp(rho)))
    x = jnp.asarray(rho, jnp.float32)
    value, gradient = softplus(x), jax.vmap(jax.grad(softplus))(x)
    assert (np.asarray(value) > 0).all()
    np.testing.assert_allclose(value, exact, rtol=1e-6)
    np.testing.assert_allclose(gradient, 1 / (1 + np.exp(-rho)), rtol=1e-5)


def test_softplus_and_its_inverse_are_exact_in_double_precision(x64):
    rho = jnp.linspace(-30.0, 30.0, 501)
    np.testing.assert_allclose(softplus(rho), np.logaddexp(0.0, rho), rtol=1e-14)
    np.testing.assert_allclose(softplus(inverse_softplus(jnp.array([1e-6, 0.1, 40.0]))), [1e-6, 0.1, 40.0], rtol=1e-10)


def test_a_sum_of_logarithms_is_exact_at_every_size():
    rng = np.random.default_rng(0)
    for num in (1, 31, 32, 1000):
        y = np.exp(rng.uniform(-80, 80, size=num)).astype(np.float32)
        value, gradient = jax.jit(jax.value_and_grad(sum_log))(y)
        np.testing.assert_allclose(value, np.log(y.astype(np.float64)).sum(), rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(gradient, 1 / y, rtol=1e-6)


@pytest.mark.parametrize("size", [3, 30, 300])
def test_a_step_of_all_numbers_widens_a_full_covariance_alike_at_any_size(size):
    """Adam moves each number by its step size: standard deviations must not grow with how many there are."""
    start = spreads.Dense.of(jnp.ones(size))
    moved = spreads.Dense(start.rho, start.lower + 0.5)
    assert float(jnp.sqrt(moved.variance()).max()) == pytest.approx(np.sqrt(1 + 0.25 * (size - 1) / size), rel=1e-4)


def _spreads():
    rng = np.random.default_rng(3)

    def real(*shape):
        return jnp.asarray(rng.normal(size=shape))

    return {
        "diagonal": spreads.Diagonal(real(2, 3)),
        "dense": spreads.Dense(real(6), real(6, 6)),
        "low rank": spreads.LowRankDiagonal(real(6), real(6, 2)),
        "matrix": spreads.MatrixVariate(real(2), real(2, 2), real(3), real(3, 3), (3, 2), (1, 0)),
    }


@pytest.mark.parametrize("name", ["diagonal", "dense", "low rank", "matrix"])
def test_a_spread_is_the_normal_distribution_of_its_root(name, x64):
    spread = _spreads()[name]
    like = spread.noise(jax.random.key(0))
    flat, back = jax.flatten_util.ravel_pytree(like)
    rooted = jax.jit(lambda e: spread.root(back(e)))
    root = np.stack([np.ravel(rooted(e)) for e in np.eye(flat.size)], axis=1)
    covariance = root @ root.T

    @jax.jit
    def ask():
        deviation = spread.root(spread.noise(jax.random.key(1)))
        return spread.variance(), spread.log_det(), deviation, spread.log_prob(deviation), spread.entropy()

    variance, log_det, deviation, density, entropy = ask()
    np.testing.assert_allclose(np.ravel(variance), np.diag(covariance), rtol=1e-10)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(covariance)[1], rtol=1e-10)
    exact = stats.multivariate_normal(np.zeros(6), covariance)
    np.testing.assert_allclose(density, exact.logpdf(np.ravel(deviation)), rtol=1e-9)
    np.testing.assert_allclose(entropy, exact.entropy(), rtol=1e-9)


def test_a_matrix_variate_covariance_is_a_kronecker_product(x64):
    spread = _spreads()["matrix"]
    rows, columns = spread._roots()
    like = spread.noise(jax.random.key(0))
    flat, back = jax.flatten_util.ravel_pytree(like)
    rooted = jax.jit(lambda e: spread.root(back(e)))
    root = np.stack([np.ravel(rooted(e), order="C") for e in np.eye(flat.size)], axis=1)
    expected = np.kron(columns @ columns.T, rows @ rows.T)  # the array is (outputs, inputs): its rows follow columns
    np.testing.assert_allclose(root @ root.T, expected, rtol=1e-10)


PARAMS = tb.Params({"layers": [{"weight": jnp.ones((3, 4)), "bias": jnp.zeros(4)}]}, (), (jnp.zeros(()),))
LAYOUT = tb.networks.MLP((), outputs=4).layout(PARAMS.weights)
COUNTS = {
    tb.families.Diagonal(): 2 * 17,
    tb.families.Layers(): 17 + 16 * 17 // 2 + 1,
    tb.families.Full(): 17 + 17 * 18 // 2,
    tb.families.LowRank(2): 17 + 17 + 2 * 17,
    tb.families.Matrix(): 17 + 3 * 4 // 2 + 4 * 5 // 2 + 4 + 1,
}


@pytest.mark.parametrize("family", COUNTS, ids=lambda family: type(family).__name__)
def test_q_has_as_many_numbers_as_its_family_says(family):
    @jax.jit
    def ask(params):
        sds = jax.tree.map(lambda leaf: 0.1 + 0.0 * leaf, params)
        q = family.around(jax.random.key(0), params, sds, LAYOUT)
        draw = q.sample(jax.random.key(1))
        return q, q.variance(), draw, q.log_prob(draw)

    q, variance, draw, density = ask(PARAMS)
    assert isinstance(q, Gaussian)
    assert q.num_parameters == COUNTS[family]
    for leaf, like in zip(jax.tree.leaves(variance), jax.tree.leaves(PARAMS), strict=True):
        assert leaf.shape == like.shape
        np.testing.assert_allclose(leaf, 0.01, rtol=2e-2)
    assert jax.tree.map(jnp.shape, draw) == jax.tree.map(jnp.shape, PARAMS)
    assert np.isfinite(density)


def test_a_full_q_too_large_for_memory_is_refused_with_its_size():
    data = tb.Data(np.zeros((10, 784)), np.zeros(10, int))
    model = tb.Model(tb.networks.MLP((256,)), tb.priors.Normal(1.0), tb.likelihoods.Categorical(10))
    with pytest.raises(tb.InputError, match=r"203,530 unknowns, which takes \d+"):
        tb.FullRank().fit(model, data, key=jax.random.key(0))
