"""Roots of the information that y gives on the outputs, against sums and integrals over y, and against Hessians."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from toys import quick
from tunbridge.core.names import LIKELIHOODS
from tunbridge.core.types import Likelihood, Logits, NormalNoise
from tunbridge.model.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Heteroscedastic,
    Laplace,
    MultiTask,
    NegativeBinomial,
    NoisyCategorical,
    Ordinal,
    Poisson,
    StudentT,
)
from tunbridge.model.likelihoods.base import OneScale


def line(nodes):
    """Nodes and weights of an integral over the real line, dense around 0 and far out; an even number misses 0."""
    t = np.linspace(-8.0, 8.0, nodes)
    return np.sinh(t), np.cosh(t) * (t[1] - t[0])


def upto(num):
    return np.arange(float(num)), np.ones(num)


TASKS = MultiTask((Gaussian(0.6), Ordinal(cutpoints=jnp.array([-1.0, 0.5])), Poisson(), Categorical(3)))
CASES = {
    "gaussian": (Gaussian(jnp.array([0.6, 2.0])), [line(200)] * 2),
    "gaussian unknown": (Gaussian(dist.LogNormal(-0.5, 1.0)), [line(300)]),
    "heteroscedastic": (Heteroscedastic(0.1), [line(400)] * 2),
    "student-t": (StudentT(jnp.array([2.0, 5.0]), jnp.array([0.6, 2.0])), [line(300)] * 2),
    "laplace": (Laplace(0.6), [line(4000)]),
    "poisson": (Poisson(), [upto(40)] * 2),
    "negative binomial": (NegativeBinomial(jnp.array([2.5, 0.7])), [upto(200), upto(400)]),
    "bernoulli": (Bernoulli(), [upto(2)]),
    "categorical": (Categorical(4, dist.LogNormal(0.5, 1.0)), [upto(4)]),
    "noisy categorical": (NoisyCategorical(3, 16), [upto(3)]),
    "ordinal": (Ordinal(4), [upto(4)]),
    "multi-task": (TASKS, [line(100), upto(3), upto(30), upto(3)]),
}
CONVEX = ("gaussian", "gaussian unknown", "poisson", "negative binomial", "bernoulli", "categorical", "ordinal")
FISHER = ("heteroscedastic", "student-t", "laplace", "noisy categorical")
CLASSES = ("bernoulli", "categorical", "noisy categorical", "ordinal")


def case(name, key):
    """(likelihood, outputs of two points, noise, every y or nodes of it, their weights)."""
    likelihood, grids = CASES[name]
    y = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes for nodes, _ in grids], indexing="ij")], axis=1)
    weight = np.prod(np.stack(np.meshgrid(*[each for _, each in grids], indexing="ij")), axis=0).ravel()
    y = jnp.asarray(y[:, 0], int) if name in CLASSES else jnp.asarray(y)
    likelihood = likelihood.bind(y)
    outputs = 0.5 * jax.random.normal(key, (2, likelihood.num_outputs(y)))
    return likelihood, outputs, likelihood.median_noise(), y, jnp.asarray(weight)


def squared(root):
    return root @ jnp.swapaxes(root, -1, -2)


def log_prob(likelihood, f, y, noise):
    return likelihood.distribution(f[None], noise).log_prob(y[None])[0]


def test_every_likelihood_has_a_case_and_none_inherits_its_information():
    assert {type(likelihood) for likelihood, _ in CASES.values()} == set(LIKELIHOODS.values())

    class Logistic(OneScale):
        scale: float = 1.0

        def distribution(self, outputs, noise=()):
            return dist.Logistic(outputs, self.scale).to_event(1)

    with pytest.raises(TypeError, match="fisher_root"):
        Logistic()


@pytest.mark.parametrize("name", quick(CASES, ("student-t",)))
def test_the_root_squared_is_the_fisher_information(name, key, x64):
    likelihood, outputs, noise, ys, weight = case(name, key)
    assert isinstance(likelihood, Likelihood)

    def information(f):
        logs, gradients = jax.vmap(lambda y: jax.value_and_grad(lambda f: log_prob(likelihood, f, y, noise))(f))(ys)
        share = jnp.exp(logs) * weight
        return jnp.sum(share), (gradients.T * share[None]) @ gradients

    mass, wanted = jax.jit(jax.vmap(information))(outputs)
    np.testing.assert_allclose(mass, 1.0, rtol=1e-5)
    root = jax.jit(lambda f: likelihood.fisher_root(f, noise))(outputs)
    assert root.shape[:2] == outputs.shape
    np.testing.assert_allclose(squared(root), wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", quick((*CONVEX, "multi-task"), ("negative binomial",)))
def test_the_root_squared_is_the_hessian_where_it_is_convex(name, key, x64):
    likelihood, outputs, noise, ys, _ = case(name, key)
    ys = ys[:: max(len(ys) // 50, 1)]
    f = jnp.tile(outputs[:1], (len(ys), 1))
    hessian = jax.hessian(lambda f, y: -log_prob(likelihood, f, y, noise))
    root = jax.jit(lambda f: likelihood.hessian_root(f, ys, noise))(f)
    np.testing.assert_allclose(squared(root), jax.jit(jax.vmap(hessian))(f, ys), atol=1e-10)


@pytest.mark.parametrize("name", quick(FISHER, ("student-t",)))
def test_the_fisher_information_stands_in_where_it_is_not(name, key):
    likelihood, outputs, noise, ys, _ = case(name, key)
    np.testing.assert_array_equal(
        likelihood.hessian_root(outputs, ys[:2], noise), likelihood.fisher_root(outputs, noise)
    )


@pytest.mark.parametrize("name", quick((*CLASSES, "heteroscedastic", "negative binomial"), ("ordinal",)))
def test_saturated_outputs_have_finite_roots_and_gradients(name, key):
    """In 32 bits, with outputs of both signs up to 1e4."""
    likelihood, outputs, noise, ys, _ = case(name, key)
    signs = jnp.where(jnp.arange(outputs.shape[1]) % 2, 1.0, -1.0)[None]
    far = jnp.concatenate([size * signs for size in (30.0, -30.0, 200.0, -200.0, 1e4, -1e4)])
    y = jnp.tile(ys[-1:], (len(far),) + (1,) * (ys.ndim - 1))

    def both(f, noise):
        roots = likelihood.fisher_root(f, noise), likelihood.hessian_root(f, y, noise)
        return sum(jnp.sum(root) for root in roots), roots

    gradients, roots = jax.jit(jax.grad(both, argnums=(0, 1), has_aux=True))(far, noise)
    assert {root.dtype for root in roots} == {jnp.dtype("float32")}
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves((gradients, roots)))


@pytest.mark.slow
def test_tasks_are_blocks(key):
    likelihood, outputs, noise, ys, _ = case("multi-task", key)
    root = likelihood.hessian_root(outputs, ys[:2], noise)
    assert root.shape == (2, 6, 6)
    inside = jax.scipy.linalg.block_diag(*[np.ones((size, size)) for size in (1, 1, 1, 3)])
    np.testing.assert_array_equal(np.asarray(root)[:, inside == 0], 0.0)
    np.testing.assert_allclose(root[:, 3:, 3:], Categorical(3).fisher_root(outputs[:, 3:]), rtol=1e-6)


@pytest.mark.parametrize("name", [name for name, (one, _) in CASES.items() if isinstance(one, NormalNoise)])
def test_declared_noise_is_that_of_the_distribution(name, key):
    likelihood, outputs, noise, *_ = case(name, key)
    found = likelihood.distribution(outputs, noise)
    np.testing.assert_allclose(likelihood.noise_variance(outputs, noise), found.variance, rtol=1e-6)
    np.testing.assert_allclose(found.mean, outputs, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name, (one, _) in CASES.items() if isinstance(one, Logits)])
def test_declared_logits_are_linear_and_have_the_probabilities(name, key):
    likelihood, outputs, noise, *_ = case(name, key)
    width = outputs.shape[1]
    covariance = jnp.broadcast_to(jnp.eye(width) + 0.5, (2, width, width))
    mean, spread = likelihood.logits(outputs, covariance, noise)
    wanted = jnp.exp(likelihood.log_probs(outputs, noise))
    np.testing.assert_allclose(jax.nn.softmax(mean, axis=-1), wanted, rtol=1e-5)
    jacobian = jax.jacobian(lambda f: likelihood.logits(f[None], covariance[:1], noise)[0][0])(outputs[0])
    np.testing.assert_allclose(spread[0], jacobian @ covariance[0] @ jacobian.T, rtol=1e-5)


def test_what_has_no_closed_form_declares_none():
    declared = {name for name, (one, _) in CASES.items() if isinstance(one, NormalNoise | Logits)}
    assert declared == {"gaussian", "gaussian unknown", "bernoulli", "categorical"}
