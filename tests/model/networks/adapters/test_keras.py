"""Keras models beyond the dense: windows, norms, cells, attention, what is frozen, what is refused."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from keras import layers

import tunbridge as tb
from tunbridge.core import tree
from tunbridge.model.networks import from_keras
from tunbridge.runtime.fingerprint import fingerprint

RNG = np.random.default_rng(0)
ZEROS = {"kernel_initializer": "zeros"}
"""Cheap to draw, and replaced by `filled`."""


def fan_ins(network):
    """By the last two names of the path."""
    shapes = tree.flatten_with_paths(network.weights)
    known = jax.tree.leaves(network.layout(network.weights))
    rows = zip(shapes, known, strict=True)
    return {
        "/".join(path.split("/")[-2:]): leaf.fan_in(array.shape)
        for (path, array), leaf in rows
        if leaf.inputs or leaf.shared
    }


def roles(network):
    return {leaf.role for leaf in jax.tree.leaves(network.layout(network.weights))}


def filled(model):
    """The model with numbers that nobody would draw, positive so that they may be variances."""
    for variable in model.weights:
        variable.assign(RNG.uniform(0.2, 1, variable.shape).astype("float32"))
    return model


def assert_same(model, x):
    network = from_keras(model)
    with jax.numpy_rank_promotion("allow"):
        wanted = jax.jit(lambda x: model(x, training=False))(x)
    outputs = jax.jit(lambda weights: network.apply(weights, x))(network.weights)
    np.testing.assert_allclose(outputs, wanted, rtol=1e-5, atol=1e-6)
    return network


def test_statistics_are_frozen_and_dropout_is_off():
    model = keras.Sequential(
        [
            keras.Input((6, 5, 4)),
            layers.Conv2D(6, (2, 3), strides=(2, 1), name="conv", **ZEROS),
            layers.BatchNormalization(name="batch"),
            layers.Dropout(0.5),
            layers.DepthwiseConv2D((1, 2), name="depth", depthwise_initializer="zeros"),
            layers.LayerNormalization(name="norm"),
            layers.Flatten(),
            layers.Dense(2, name="out", **ZEROS),
        ]
    )
    network = assert_same(filled(model), RNG.normal(size=(3, 6, 5, 4)).astype("float32"))
    assert fan_ins(network) == {"conv/kernel": 4 * 2 * 3, "depth/kernel": 2, "out/kernel": 36}
    assert roles(network) == {"weight", "bias", "norm"}
    assert len(network.constants) == 3  # two statistics, and the state of dropout's generator


def test_cells_and_attention_have_their_axes():
    words = keras.Input((5,), dtype="int32")
    with jax.numpy_rank_promotion("allow"):
        x = layers.Embedding(11, 6, embeddings_initializer="zeros")(words)
        x = layers.LSTM(4, return_sequences=True, **ZEROS, recurrent_initializer="zeros")(x)
        x = layers.GRU(3, return_sequences=True, **ZEROS, recurrent_initializer="zeros")(x)
        x = layers.MultiHeadAttention(2, 5, **ZEROS)(x, x)
        model = keras.Model(words, layers.Dense(2, **ZEROS)(layers.GlobalAveragePooling1D()(x)))
    network = assert_same(filled(model), RNG.integers(0, 11, (3, 5)))
    fans = fan_ins(network)
    assert {name: fan for name, fan in fans.items() if "cell" in name} == {
        "lstm_cell/kernel": 6,
        "lstm_cell/recurrent_kernel": 4,
        "gru_cell/kernel": 4,
        "gru_cell/recurrent_kernel": 3,
    }
    assert [fans[f"{name}/kernel"] for name in ("query", "key", "value", "attention_output")] == [3, 3, 3, 10]
    assert roles(network) == {"weight", "bias", "embedding"}


def test_what_is_not_trainable_is_a_constant_and_what_is_foreign_is_unknown():
    class Scale(layers.Layer):
        def build(self, shape):
            self.factor = self.add_weight(shape=(shape[-1],), name="factor")

        def call(self, x):
            return x * self.factor[None]

    model = keras.Sequential([keras.Input((3,)), layers.Dense(4, trainable=False), Scale(), layers.Dense(2)])
    network = assert_same(model, RNG.normal(size=(3, 3)).astype("float32"))
    assert [array.shape for array in network.constants] == [(3, 4), (4,)]
    assert roles(network) == {"weight", "bias", "unknown"}
    with pytest.raises(tb.InputError, match=r"which priors\.fan_in needs; got none for .*/factor"):
        tb.priors.Normal(tb.priors.fan_in(1.0)).bind(network.weights, network.layout(network.weights))


def test_what_cannot_be_a_network_is_refused(monkeypatch):
    class Open(keras.Model):
        def call(self, x):
            return x

    twins = keras.Sequential([keras.Input((3,)), layers.Dense(3)])
    with pytest.raises(tb.InputError, match=r"a keras\.Model; got Dense"):
        from_keras(layers.Dense(2))
    with pytest.raises(tb.InputError, match="a built model"):
        from_keras(Open())
    monkeypatch.setattr(type(twins), "trainable_variables", property(lambda model: model.layers[0].weights[:1] * 2))
    with pytest.raises(tb.InputError, match=r"different paths; got several .*dense.*/kernel"):
        from_keras(twins)
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(tb.InputError, match="on the JAX backend; got the backend torch"):
        from_keras(twins)


def test_points_may_be_any_number():
    network = from_keras(keras.Sequential([keras.Input((3,)), layers.Dense(2)]))
    shapes = [jax.eval_shape(network.apply, network.weights, jnp.zeros((num, 3))).shape for num in (1, 7)]
    assert shapes == [(1, 2), (7, 2)]


def test_a_checkpoint_tells_two_architectures_apart():
    def net(activation):
        model = keras.Sequential([keras.Input((3,), name="x"), layers.Dense(2, activation, name="dense")], name="net")
        model.set_weights([np.ones((3, 2)), np.ones(2)])
        return from_keras(model)

    assert fingerprint(net("tanh")) == fingerprint(net("tanh"))
    assert fingerprint(net("tanh")) != fingerprint(net("relu"))
