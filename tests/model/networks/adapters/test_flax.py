"""Flax modules beyond the dense: windows, norms, cells, attention, evaluation mode, what is refused."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tunbridge as tb
from tunbridge.core import tree
from tunbridge.model.networks import Leaf, from_flax


def leaves_of(network):
    """(Leaf, shape) by path."""
    shapes = dict(tree.flatten_with_paths(network.weights))
    return {path: (leaf, shapes[path].shape) for path, leaf in tree.flatten_with_paths(network.layout(network.weights))}


def fan_ins(network):
    return {path: leaf.fan_in(shape) for path, (leaf, shape) in leaves_of(network).items() if leaf.role == "weight"}


def outputs(network, x):
    return jax.jit(lambda weights: network.apply(weights, x))(network.weights)


def numbers(shapes):
    """Arrays of these shapes with numbers that nobody would draw, positive so that they may be variances."""
    rng = np.random.default_rng(1)

    def one(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        return jnp.asarray(rng.uniform(0.2, 1, leaf.shape).astype(leaf.dtype))

    return jax.tree.map(one, shapes)


def filled(module, *args, **kwargs):
    """A Linen module's variables."""
    return numbers(jax.eval_shape(lambda: module.init(jax.random.key(0), *args, **kwargs)))


def built(make):
    """An NNX module."""
    graph, state = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    return nnx.merge(graph, numbers(state))


class Pictures(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.Conv(6, (2, 3), strides=(2, 1))(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.Dropout(0.5, deterministic=not train)(x)
        x = nn.LayerNorm()(nn.relu(x))
        x = x.mean(axis=(1, 2))
        return nn.Dense(2)(x) + self.param("own", nn.initializers.ones, (1, 2))


class PicturesNNX(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(4, 6, (2, 3), strides=(2, 1), rngs=rngs)
        self.batch = nnx.BatchNorm(6, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.norm = nnx.LayerNorm(6, rngs=rngs)
        self.dense = nnx.Linear(6, 2, rngs=rngs)

    def __call__(self, x, train=True):
        x = self.norm(nnx.relu(self.drop(self.batch(self.conv(x))))) + float(train)
        return self.dense(x.mean(axis=(1, 2)))


@pytest.fixture
def pictures():
    return jnp.asarray(np.random.default_rng(0).normal(size=(3, 6, 5, 4)), jnp.float32)


def test_linen_statistics_are_frozen_and_dropout_is_off(pictures):
    module = Pictures()
    variables = filled(module, pictures, train=False)
    wanted = jax.jit(lambda variables: module.apply(variables, pictures, train=False))(variables)
    network = from_flax(module, pictures[:1], variables=variables)
    np.testing.assert_allclose(outputs(network, pictures), wanted, rtol=1e-5, atol=1e-6)
    assert set(network.constants) == {"batch_stats"}
    assert set(network.weights) == set(variables["params"])
    assert fan_ins(network) == {"Conv_0/kernel": 4 * 2 * 3, "Dense_0/kernel": 6}
    roles = {path: leaf.role for path, (leaf, _) in leaves_of(network).items()}
    assert roles["BatchNorm_0/scale"] == roles["LayerNorm_0/bias"] == "norm"
    assert roles["Conv_0/bias"] == "bias"
    assert roles["own"] == "unknown"
    assert leaves_of(network)["Conv_0/kernel"][0] == Leaf("weight", inputs=(2,), outputs=(3,), shared=(0, 1))


def test_nnx_statistics_are_frozen_and_dropout_is_off_in_a_copy(pictures):
    module = built(PicturesNNX)
    network = from_flax(module)
    assert not module.drop.deterministic
    module.eval()
    np.testing.assert_allclose(
        outputs(network, pictures), nnx.jit(lambda module: module(pictures, train=False))(module), rtol=1e-5, atol=1e-6
    )
    assert fan_ins(network) == {"conv/kernel": 4 * 2 * 3, "dense/kernel": 6}
    assert leaves_of(network)["batch/bias"][0].role == "norm"


class Words(nn.Module):
    cell: type

    @nn.compact
    def __call__(self, x):
        x = nn.Embed(11, 6)(x)
        x = nn.RNN(self.cell(4))(x)
        x = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=6)(x)
        return nn.Dense(2)(x.mean(axis=1))


@pytest.mark.parametrize("cell", [nn.OptimizedLSTMCell, nn.GRUCell])
def test_linen_cells_and_attention_have_their_axes(cell):
    module, x = Words(cell), jnp.zeros((1, 5), int)
    network = from_flax(module, x, variables=filled(module, x))
    fans, name = fan_ins(network), f"{cell.__name__}_0"
    assert {fan for path, fan in fans.items() if path.startswith(f"{name}/i")} == {6}
    assert {fan for path, fan in fans.items() if path.startswith(f"{name}/h")} == {4}
    attention = {path.split("/", 1)[1]: fan for path, fan in fans.items() if path.startswith("MultiHead")}
    assert attention == {"query/kernel": 4, "key/kernel": 4, "value/kernel": 4, "out/kernel": 6}
    assert leaves_of(network)["Embed_0/embedding"][0].role == "embedding"
    assert {leaf.role for leaf, _ in leaves_of(network).values()} == {"weight", "bias", "embedding"}


def test_nnx_cells_and_attention_have_their_axes():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(11, 6, rngs=rngs)
            self.cells = nnx.RNN(nnx.OptimizedLSTMCell(6, 4, rngs=rngs))
            self.attend = nnx.MultiHeadAttention(2, 4, qkv_features=6, decode=False, rngs=rngs)
            self.mix = nnx.Einsum("btd,dhk->bthk", (4, 3, 5), (3, 5), rngs=rngs)
            self.out = nnx.Linear(15, 2, rngs=rngs)

        def __call__(self, x):
            x = self.mix(self.attend(self.cells(self.embed(x))))
            return self.out(x.mean(axis=1).reshape(x.shape[0], -1))

    module = built(Net)
    network = from_flax(module)
    assert fan_ins(network) == {
        "attend/key/kernel": 4,
        "attend/out/kernel": 6,
        "attend/query/kernel": 4,
        "attend/value/kernel": 4,
        "cells/cell/dense_h/kernel": 4,
        "cells/cell/dense_i/kernel": 6,
        "mix/kernel": 4,
        "out/kernel": 15,
    }
    x = jnp.arange(10).reshape(2, 5)
    np.testing.assert_allclose(outputs(network, x), nnx.jit(lambda module: module(x))(module), rtol=1e-5, atol=1e-6)


def test_a_layer_lifted_over_a_stack_is_not_guessed():
    class Stack(nn.Module):
        @nn.compact
        def __call__(self, x):
            lifted = nn.vmap(
                nn.Dense,
                in_axes=None,
                out_axes=0,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                axis_size=3,
            )
            return lifted(2)(x).sum(axis=0)

    module, x = Stack(), jnp.zeros((1, 4))
    network = from_flax(module, x, variables=filled(module, x))
    ((kernel, shape),) = [entry for path, entry in leaves_of(network).items() if path.endswith("kernel")]
    assert shape == (3, 4, 2)
    assert kernel.role == "unknown"


def test_linen_weights_are_drawn_by_the_module_itself(key):
    network = from_flax(nn.Dense(2, kernel_init=nn.initializers.uniform(0.01)), jnp.zeros((1, 40)))
    one, two = (network.init(k, jnp.zeros((3, 40)))["kernel"] for k in jax.random.split(key))
    assert not np.array_equal(one, two)
    assert 0 <= float(one.min()) < float(one.max()) <= 0.01


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: from_flax(nn.Dense), r"a flax\.linen\.Module or a flax\.nnx\.Module; got"),
        (lambda: from_flax(nn.Dense(2)), "example inputs with a Linen module"),
        (lambda: from_flax(nn.Dropout(0.5, deterministic=False), jnp.zeros((1, 2))), "in evaluation mode"),
        (lambda: from_flax(nn.Sequential([nn.Dropout(0.5)]), jnp.zeros((1, 2))), "Let its call take one of train"),
        (lambda: from_flax(nnx.Linear(2, 1, rngs=nnx.Rngs(0)), jnp.zeros((1, 2))), "an NNX module alone"),
        (
            lambda: from_flax(nn.Dense(2), jnp.zeros((1, 3)), variables={"params": {"kernel": jnp.zeros((4, 2))}}),
            "give variables that fit it",
        ),
    ],
)
def test_what_cannot_be_a_network_is_refused(make, said):
    with pytest.raises(tb.InputError, match=said):
        make()
