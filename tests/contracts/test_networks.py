"""What every network keeps to, in a tiny profile."""

import inspect
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from toys import equal
from tunbridge.core import tree

IMAGES = jax.random.normal(jax.random.key(1), (3, 8, 8, 2))
ROWS = jax.random.normal(jax.random.key(1), (3, 4))
TOKENS = jax.random.randint(jax.random.key(1), (3, 10), 0, 9)
TINY = {
    "MLP": (tb.networks.MLP((5,)), ROWS),
    "Shallow": (tb.networks.Shallow(5, nonlinear=(0, 2)), ROWS),
    "Offset": (tb.networks.Offset(tb.networks.MLP((5,))), jnp.exp(ROWS)),
    "Cast": (tb.networks.Cast(tb.networks.MLP((5,))), ROWS),
    "LeNet5": (tb.networks.LeNet5(), IMAGES),
    "ResNet20": (tb.networks.ResNet20(width=2, blocks=1), IMAGES),
    "VGG": (tb.networks.VGG(11, 1 / 32), IMAGES),
    "CNNLSTM": (tb.networks.CNNLSTM(9, 3, 4, 2, 2, 3), TOKENS),
}


def test_every_network_has_a_profile():
    classes = {name for name in tb.networks.__all__ if inspect.isclass(getattr(tb.networks, name))}
    assert set(TINY) == classes - {"Leaf"}


@pytest.mark.parametrize("name", TINY)
def test_a_network_is_a_pure_function_of_weights_and_rows(name, key):
    network, x = TINY[name]
    network = network.with_outputs(2)
    assert network.with_outputs(5) == network
    init, apply = jax.jit(network.init), jax.jit(network.apply)
    weights = init(key, x)
    assert equal(init(key, x), weights)
    assert not equal(init(jax.random.key(0), x), weights)
    outputs = apply(weights, x)
    assert outputs.shape == (3, 2)
    assert outputs.dtype == jnp.float32
    assert np.isfinite(outputs).all()
    np.testing.assert_allclose(apply(weights, x[::-1]), outputs[::-1], rtol=1e-4, atol=1e-5)
    assert equal(pickle.loads(pickle.dumps(network)), network)


@pytest.mark.parametrize("name", TINY)
def test_a_layout_names_each_axis_once(name, key):
    network, x = TINY[name]
    network = network.with_outputs(2)
    shapes = jax.eval_shape(network.init, key, x)
    layout = network.layout(shapes)
    assert jax.tree.structure(layout) == jax.tree.structure(shapes)
    for (path, leaf), known in zip(tree.flatten_with_paths(shapes), jax.tree.leaves(layout), strict=True):
        axes = sorted(known.inputs + known.outputs + known.shared)
        assert axes == list(range(len(leaf.shape))), path
        assert known.role != "unknown"
