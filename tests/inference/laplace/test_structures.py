"""Structures against the whole matrix, which is built here by autodiff from the definitions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.flatten_util import ravel_pytree

import tunbridge as tb
from toys import labelled, table
from tunbridge.core import memory
from tunbridge.inference.laplace import structures
from tunbridge.inference.laplace.local import Local

GGN, FULL = tb.curvatures.GGN(), tb.structures.Full()


def local_of(network, data, likelihood, prior=None, subset=None):
    """A bound model at weights drawn at random, and its bound data."""
    model, data = tb.Model(network, prior or tb.priors.Normal(0.7), likelihood).bind(data)
    weights = jax.jit(lambda key: model.network.init(key, data.x))(jax.random.key(3))
    return Local(model, tb.Params(weights), subset or tb.subsets.All()), data


def measured(structure, local, data, curvature=GGN):
    variances = np.asarray(local.variances(()), np.float64)
    found = structure.measure(local, curvature, data, variances, jax.random.key(0))
    return found, structures.blocks(structure, found, variances, lambda _: True)[0], variances


def precision(blocks, size):
    """The whole covariance, inverted."""
    covariance = np.asarray(jax.jit(jax.vmap(structures.linalg.Covariance(blocks, size).product))(np.eye(size)))
    return np.linalg.inv(covariance)


def by_definition(local, data, reduce=None):
    """sum_n J^T C C^T J with the Jacobian of autodiff."""
    flat, back = ravel_pytree(local.weights)

    @jax.jit
    def ask(w):
        f = local.model.network.apply(back(w), data.x)
        jacobian = jax.jacobian(lambda w: local.model.network.apply(back(w), data.x))(w)
        return jacobian, local.model.likelihood.hessian_root(f, data.y, ())

    outputs, columns = map(np.asarray, ask(flat))
    rows = np.einsum("nod,nok->nkd", outputs, columns).reshape(-1, flat.size)
    return rows.T @ rows


@pytest.fixture
def classes(x64):
    return local_of(tb.networks.MLP((3,)), labelled(24), tb.likelihoods.Categorical())


def test_full_is_the_sum_of_outer_products_and_the_diagonal_its_diagonal(classes):
    local, data = classes
    whole = by_definition(local, data)
    prior = np.eye(local.size) / 0.7**2
    _, blocks, _ = measured(FULL, local, data)
    np.testing.assert_allclose(precision(blocks, local.size), whole + prior, rtol=1e-8, atol=1e-9)
    _, blocks, _ = measured(tb.structures.Diagonal(), local, data)
    wanted = np.diag(np.diag(whole + prior))
    np.testing.assert_allclose(precision(blocks, local.size), wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("structure", [FULL, tb.structures.BlockDiagonal(), tb.structures.Diagonal()])
@pytest.mark.parametrize("num", [4, 24])
def test_the_log_determinant_is_that_of_the_precision_over_the_priors(structure, num, x64):
    """Of few rows by the rows of a root, of many by the matrix."""
    local, data = local_of(tb.networks.MLP((3,)), labelled(num), tb.likelihoods.Categorical())
    found, blocks, variances = measured(structure, local, data)
    wanted = np.linalg.slogdet(precision(blocks, local.size))[1] + np.log(variances).sum()
    np.testing.assert_allclose(structure.log_det(found, variances), wanted, rtol=1e-9)


@pytest.mark.slow
def test_rows_that_say_the_same_leave_shapes_and_the_matrix_as_they_are(x64):
    """What is compiled for one table serves another, whatever the rank of its curvature."""
    data = table(4)
    twice = tb.Data(data.x[jnp.array([0, 1, 0, 1])], data.y[jnp.array([0, 1, 0, 1])])
    found = []
    for rows in (data, twice):
        local, bound = local_of(tb.networks.MLP((5,)), rows, tb.likelihoods.Gaussian(0.5))
        _, blocks, _ = measured(FULL, local, bound)
        wanted = by_definition(local, bound) + np.eye(local.size) / 0.7**2
        np.testing.assert_allclose(precision(blocks, local.size), wanted, rtol=1e-8, atol=1e-9)
        found.append(jax.tree.map(jnp.shape, blocks))
    assert found[0] == found[1]


@pytest.mark.slow
def test_blocks_are_those_of_the_whole_matrix(classes):
    local, data = classes
    _, blocks, _ = measured(tb.structures.BlockDiagonal(), local, data)
    whole = by_definition(local, data) + np.eye(local.size) / 0.7**2
    found = precision(blocks, local.size)
    for block in blocks:
        inside = np.ix_(np.asarray(block.index), np.asarray(block.index))
        np.testing.assert_allclose(found[inside], whole[inside], rtol=1e-8, atol=1e-9)
    assert sum(block.index.size for block in blocks) == local.size


@pytest.mark.slow
def test_gauss_newton_is_the_hessian_of_a_linear_network(x64):
    local, data = local_of(tb.networks.MLP(()), labelled(24), tb.likelihoods.Categorical())
    (found,) = measured(FULL, local, data)[0].sums
    (exact,) = measured(FULL, local, data, tb.curvatures.Hessian())[0].sums
    np.testing.assert_allclose(found[1], exact[1], rtol=1e-9, atol=1e-10)
    (fisher,) = measured(FULL, local, data, tb.curvatures.Fisher())[0].sums
    np.testing.assert_allclose(found[1], fisher[1], rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_sampled_fisher_is_unbiased(x64):
    """The mean over 200 keys lies within 4.5 standard errors at each of the entries: false alarm below 1 in 1,000."""
    local, data = local_of(tb.networks.MLP(()), labelled(24), tb.likelihoods.Categorical())
    whole = by_definition(local, data)
    curvature = tb.curvatures.Fisher(samples=2)
    draws = []
    for seed in range(200):
        (found,) = FULL.measure(local, curvature, data, np.full(local.size, 0.49), jax.random.key(seed)).sums
        draws.append(found[1])
    error = np.std(draws, axis=0) / np.sqrt(200)
    assert (np.abs(np.mean(draws, axis=0) - whole) <= 4.5 * error + 1e-12).all()


@pytest.mark.slow
def test_low_rank_comes_nearer_with_every_rank_and_is_whole_with_one_a_row(x64):
    local, data = local_of(tb.networks.MLP((6,)), table(8), tb.likelihoods.Gaussian(0.3))
    _, blocks, _ = measured(FULL, local, data)
    whole = np.asarray(structures.linalg.Covariance(blocks, local.size).diagonal())
    errors = []
    for rank in (1, 3, 5, 8):
        _, blocks, _ = measured(tb.structures.LowRank(rank), local, data)
        errors.append(np.abs(np.asarray(structures.linalg.Covariance(blocks, local.size).diagonal()) / whole - 1).max())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6


class Windows(nn.Module):
    """One convolution without what follows it but a mean: the exact block is easily written down."""

    @nn.compact
    def __call__(self, x):
        return nn.Conv(2, (3,), padding="VALID")(x).mean(1)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["expand", "reduce"])
def test_factors_of_a_convolution_follow_their_definitions(sharing, x64):
    x = np.random.default_rng(0).normal(size=(15, 6, 2)).astype(np.float32).astype(float)  # Flax is float32
    data = tb.Data(x, np.random.default_rng(1).normal(size=(15, 2)))
    local, data = local_of(tb.networks.from_flax(Windows(), x[:1]), data, tb.likelihoods.Gaussian(0.5))
    found, _, _ = measured(tb.structures.Kronecker(sharing=sharing), local, data)
    (part,), ((left, right, count),) = found.parts, found.sums
    patches = np.stack([x[:, t : t + 3].transpose(0, 2, 1).reshape(15, -1) for t in range(4)], axis=1)  # (n, t, c k)
    patches = np.concatenate([patches, np.ones((15, 4, 1))], axis=2)
    gradients = np.broadcast_to(np.eye(2)[None, None] / 4 / 0.5, (15, 4, 2, 2))  # of the mean, a position: (n, t, k, o)
    if sharing == "reduce":
        patches, gradients = patches.mean(1, keepdims=True), gradients.sum(1, keepdims=True)
    rounding = {"rtol": 1e-10} if sharing == "expand" else {"rtol": 1e-5, "atol": 1e-6}  # means over positions round
    np.testing.assert_allclose(left, np.einsum("nti,ntj->ij", patches, patches), **rounding)
    np.testing.assert_allclose(right, np.einsum("ntko,ntkp->op", gradients, gradients), rtol=1e-10, atol=1e-12)
    assert count == 15 * patches.shape[1]
    if sharing == "reduce":  # exact where outputs are a mean over positions
        whole = by_definition(local, data)[np.ix_(part.index.ravel(), part.index.ravel())]
        np.testing.assert_allclose(np.kron(left, right) / count, whole, rtol=1e-5, atol=1e-5)  # Flax is float32


@pytest.mark.slow
def test_corrected_eigenvalues_are_mean_squares_along_the_eigenvectors(classes):
    local, data = classes
    whole = by_definition(local, data)
    _, blocks, _ = measured(tb.structures.Kronecker(corrected=True), local, data)
    for block in blocks:
        index = np.asarray(block.index).ravel()
        turned = np.kron(np.asarray(block.rows), np.asarray(block.columns))
        wanted = np.diagonal(turned.T @ whole[np.ix_(index, index)] @ turned) * 0.49
        np.testing.assert_allclose(np.asarray(block.corrected).ravel(), wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_kronecker_is_exact_for_one_layer_whatever_the_scales_of_inputs(x64):
    """Variances that are a product of rows and columns are whitened away: fan-in scaling and one scale per input."""
    data = tb.Data(np.random.default_rng(0).normal(size=(20, 3)), np.random.default_rng(1).normal(size=(20, 2)))
    for prior in (tb.priors.Normal(tb.priors.fan_in(1.3)), tb.priors.ARD(1.0)):
        local, bound = local_of(tb.networks.MLP(()), data, tb.likelihoods.Gaussian(0.5), prior)
        _, full, _ = measured(FULL, local, bound)
        _, kron, _ = measured(tb.structures.Kronecker(), local, bound)
        np.testing.assert_allclose(precision(kron, local.size), precision(full, local.size), rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_negative_curvature_is_clipped_and_reported(key, x64):
    """At the top of a hill between two modes the exact Hessian is indefinite."""
    data = tb.Data(np.linspace(-1, 1, 9)[:, None], np.linspace(-1, 1, 9))
    model = tb.Model(tb.networks.MLP((2,)), tb.priors.Normal(3.0), tb.likelihoods.Gaussian(0.1))
    weights = jax.tree.map(jnp.zeros_like, jax.jit(dataclasses.replace(model.network, outputs=1).init)(key, data.x))
    method = tb.Laplace(curvature=tb.curvatures.Hessian(), point=None)
    posterior = method.fit(model, data, init=weights, key=key)
    assert "Curvature is negative in 2 of 7 directions" in " ".join(posterior.notes)
    prior = 9.0 * (1 + 1e-9)
    assert (np.asarray(posterior.gaussian.covariance.diagonal()) <= prior).all()
    assert np.isfinite(posterior.predict(data.x).variance).all()


def test_what_does_not_fit_in_memory_is_refused_before_anything_is_computed(key, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    data = tb.Data(np.zeros((20000, 784)), np.arange(20000) % 10)
    model = tb.Model(tb.networks.MLP((256,)), tb.priors.Normal(1.0), tb.likelihoods.Categorical())
    with pytest.raises(tb.InputError, match=r"976\.\d GB for 203,530 weights. Use structures.Kronecker"):
        tb.Laplace(structure=FULL).fit(model, data, key=key)
