"""Kernels that keep an image on the chip compute what the layers say, forwards and backwards; here step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.model.networks.architectures import resnet
from tunbridge.model.networks.fused import network as fused

PLAIN, FUSED = tb.networks.ResNet20(blocks=1, outputs=3), tb.networks.ResNet20(blocks=1, outputs=3, fused=True)
IMAGES = jax.ShapeDtypeStruct((3, 16, 16, 3), jnp.float32)


def _normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def _weights(*leading):
    like = jax.eval_shape(PLAIN.init, jax.random.key(0), IMAGES)
    leaves, structure = jax.tree.flatten(like)
    return structure.unflatten([0.3 * _normal(i, *leading, *leaf.shape) for i, leaf in enumerate(leaves)])


def _agree(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * float(np.max(np.abs(a))))


@pytest.mark.slow
def test_a_block_and_its_gradients_are_those_of_its_layers():
    """With a stride, a projection and a sum: every kind of kernel."""
    block, x, along = _weights()["stages"][1][0], _normal(1, 2, 8, 8, 16), _normal(2, 2, 4, 4, 32)

    def layers(block, x):
        return jnp.sum(along * resnet.residual(block, x))

    def kernels(block, x):
        return jnp.sum(along * fused.block((8, 8), block, x.reshape(2, 64, 16)).reshape(2, 4, 4, 32))

    _agree(*(jax.jit(jax.value_and_grad(f, (0, 1)))(block, x) for f in (layers, kernels)))


@pytest.mark.slow
def test_a_network_and_its_gradients_are_the_same_for_chains_side_by_side():
    weights, x, along = _weights(2), _normal(1, 2, *IMAGES.shape), _normal(2, 3, 3)

    def found(network):
        value = jax.value_and_grad(lambda w, x: jnp.sum(along * network.apply(w, x)), (0, 1))
        return jax.jit(jax.vmap(value))(weights, x)

    def off(one, other):
        return np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True)))

    exact = found(PLAIN)
    _agree(exact, found(FUSED))
    low, nothing = found(tb.networks.Cast(FUSED)), jax.tree.map(jnp.zeros_like, exact)
    assert 0 < off(low, exact) < 0.1 * off(exact, nothing)  # a number of bfloat16 has 8 bits


@pytest.mark.parametrize(
    ("network", "shape", "said"),
    [
        (FUSED, (2, 12, 16, 3), "powers of two from 16 to 64"),
        (FUSED, (2, 16, 8, 3), "powers of two from 16 to 64"),
        (FUSED, (2, 16, 16, 65), "at most 64 channels"),
        (tb.networks.ResNet20(width=32, blocks=1, outputs=3, fused=True), (2, 16, 16, 3), "width 16"),
    ],
)
def test_what_no_kernel_takes_is_refused(network, shape, said):
    weights = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros(shape))
    with pytest.raises(tb.InputError, match=said):
        jax.eval_shape(network.apply, weights, jnp.zeros(shape))


@pytest.mark.slow
def test_curvature_by_layers_is_refused(key):
    model = tb.Model(FUSED, tb.priors.Normal(1.0), tb.likelihoods.Categorical(3))
    rows = tb.Data(np.zeros((3, 16, 16, 3), np.float32), np.arange(3))
    with pytest.raises(tb.InputError, match="curvature by layers"):
        tb.Laplace(structure=tb.structures.Kronecker(), point=None).fit(model, rows, key=key, init=_weights())


def test_numbers_of_pixels_are_as_good_as_floats():
    x = jnp.asarray(np.random.default_rng(0).integers(0, 255, (1, 16, 16, 3)), jnp.uint8)
    shapes = [jax.eval_shape(fused.stem, _weights(), image).dtype for image in (x, x.astype(jnp.float32))]
    assert shapes == [jnp.float32, jnp.float32]


def test_a_method_that_differentiates_forwards_is_told_so():
    def curvature(weights, x):
        gradient = jax.grad(lambda w: jnp.sum(FUSED.apply(w, x)))
        return jax.jvp(gradient, (weights,), (weights,))

    with pytest.raises(tb.InputError, match="first-order gradients by backpropagation"):
        jax.eval_shape(curvature, _weights(), IMAGES)
