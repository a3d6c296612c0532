"""`PerArm`: its reward is that output of a perceptron of the context, and the last layer of methods is all heads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.inference.linear import features

NETWORK = tb.bandits.PerArm(3, (5,), "tanh")
CONTEXTS = np.random.default_rng(0).normal(size=(12, 4))
ARMS = np.arange(12) % 3
ROWS = np.concatenate([CONTEXTS, np.eye(3)[ARMS]], axis=1)


def test_the_reward_of_an_arm_is_its_output(key):
    weights = jax.tree.map(lambda leaf: leaf + 0.1, NETWORK.init(key, jnp.asarray(ROWS)))
    every = tb.networks.MLP((5,), "tanh", outputs=3).apply(weights, jnp.asarray(CONTEXTS))
    found = NETWORK.apply(weights, jnp.asarray(ROWS))
    np.testing.assert_allclose(found[:, 0], np.asarray(every)[np.arange(12), ARMS], rtol=2e-6)


def test_an_exact_last_layer_has_all_heads(key):
    """Of 5 units and a constant for each of 3 arms; an arm never tried keeps its prior, standard deviation 2."""
    model = tb.Model(NETWORK, tb.priors.Normal(2.0), tb.likelihoods.Gaussian(0.1))
    bound, _ = model.bind(tb.Data(ROWS, np.ones(12)))
    weights = NETWORK.init(key, jnp.asarray(ROWS))
    assert features.last(bound, weights).index.shape == (18, 1)
    features.check_linear(bound, weights, ROWS)
    tried = ARMS < 2
    posterior = tb.NeuralLinear(tb.MAP(train=tb.Train(20))).fit(
        model, (ROWS[tried], CONTEXTS[tried, 0]), key=key, progress=False
    )
    phi = posterior.features(ROWS)
    wanted = 4.0 * np.sum(phi[~tried] ** 2, axis=1)
    np.testing.assert_allclose(np.asarray(posterior.predict(ROWS).epistemic)[~tried, 0], wanted, rtol=1e-4)


def test_one_arm_is_no_choice():
    with pytest.raises(tb.InputError, match="two arms or more"):
        tb.bandits.PerArm(1)


def test_rows_without_a_context_are_refused(key):
    with pytest.raises(tb.InputError, match="features \\+ 3 arms"):
        NETWORK.init(key, jnp.zeros((4, 3)))
