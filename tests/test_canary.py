"""Compiled code against float64 NumPy: a broken jaxlib must not go unnoticed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb


@pytest.mark.parametrize("points", [1, 7, 64])
@pytest.mark.parametrize("width", [1, 3, 32, 50])
def test_jitted_and_vmapped_products_agree_with_numpy(points, width):
    rng = np.random.default_rng(points * 100 + width)
    w, x = rng.normal(size=(5, width, width)), rng.normal(size=(points, width))
    vector = jax.jit(jax.vmap(lambda a, b: a @ b, in_axes=(None, 0)))(jnp.asarray(w[0]), jnp.asarray(x))
    matrix = jax.jit(jax.vmap(lambda a: x @ a))(jnp.asarray(w))
    both = jax.jit(jax.vmap(jax.vmap(jnp.matmul, in_axes=(None, 0)), in_axes=(0, None)))(w, x)
    scale = 1e-5 * width
    np.testing.assert_allclose(vector, x @ w[0].T, atol=scale)
    np.testing.assert_allclose(matrix, x[None] @ w, atol=scale)
    np.testing.assert_allclose(both, np.einsum("mij,nj->mni", w, x), atol=scale)


def test_a_network_and_its_gradient_agree_with_numpy():
    rng = np.random.default_rng(0)
    a, b, x = rng.normal(size=(13, 50)), rng.normal(size=(50, 1)), rng.normal(size=(100, 13))
    network = tb.networks.MLP((50,), outputs=1)
    weights = {"layers": [{"weight": a, "bias": np.zeros(50)}, {"weight": b, "bias": np.zeros(1)}]}
    weights = jax.tree.map(jnp.asarray, weights)
    value, gradient = jax.jit(jax.value_and_grad(lambda w: jnp.sum(network.apply(w, jnp.asarray(x)))))(weights)
    z = np.tanh(x @ a)
    np.testing.assert_allclose(value, (z @ b).sum(), rtol=1e-4)
    np.testing.assert_allclose(gradient["layers"][1]["weight"], z.sum(0)[:, None], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(gradient["layers"][0]["weight"], x.T @ ((1 - z**2) * b.T), rtol=1e-3, atol=1e-3)


def test_sums_are_right_where_an_array_is_read_again_after_it_was_scaled():
    """jaxlib 0.11.1 to 0.12.0 are off by log 2.5 unless a flag of `runtime/compiler.py` disables a fusion."""
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(20, 20_000)).astype(np.float32), rng.normal(size=20_000).astype(np.float32)

    def log_joint(x, t):
        scale = jnp.exp(t)
        return jnp.sum(x * x - jnp.log(2.5 * scale)[None], axis=0) + jnp.log(scale) - 2.0 * scale

    exact = np.sum(np.float64(x) ** 2 - np.log(2.5) - t, axis=0) + t - 2.0 * np.exp(t)
    np.testing.assert_allclose(jax.jit(log_joint)(x, t), exact, atol=1e-3)
