"""The network of one hidden layer beside a linear part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.model.networks import Shallow

X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("nonlinear", [None, (2, 0)])
def test_it_is_the_formula(linear, nonlinear, key):
    network = Shallow(4, "tanh", linear, nonlinear, outputs=2)
    weights = jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape), network.init(key, jnp.asarray(X)))
    hidden, output = weights["hidden"], weights["output"]["weight"]
    taken = X if nonlinear is None else X[:, list(nonlinear)]
    wanted = np.tanh(taken @ np.asarray(hidden["weight"]) + np.asarray(hidden["bias"])) @ np.asarray(output)
    if linear:
        wanted = wanted + X @ np.asarray(weights["linear"]["weight"]) + np.asarray(weights["linear"]["bias"])
    np.testing.assert_allclose(network.apply(weights, jnp.asarray(X)), wanted, rtol=1e-5, atol=1e-5)


def test_an_input_left_out_of_the_hidden_units_has_a_linear_effect(key):
    network = Shallow(4, nonlinear=(0, 2), outputs=1)
    weights = network.init(key, jnp.asarray(X))
    moved = X + np.array([0.0, 2.0, 0.0], np.float32)
    change = network.apply(weights, jnp.asarray(moved)) - network.apply(weights, jnp.asarray(X))
    np.testing.assert_allclose(change, 2.0 * weights["linear"]["weight"][1, 0], rtol=1e-4)


@pytest.mark.parametrize("nonlinear", [(), (0, 0), (-1,), [0], (0.5,), "x"])
def test_wrong_indices_are_refused(nonlinear):
    with pytest.raises(tb.InputError, match="nonlinear"):
        Shallow(4, nonlinear=nonlinear)


def test_indices_beyond_the_inputs_and_images_are_refused(key):
    with pytest.raises(tb.InputError, match="nonlinear below 3"):
        Shallow(4, nonlinear=(3,), outputs=1).init(key, jnp.asarray(X))
    with pytest.raises(tb.InputError, match="points, features"):
        Shallow(4, outputs=1).init(key, jnp.zeros((2, 3, 3)))
