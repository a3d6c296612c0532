import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.core import tree
from tunbridge.model.networks import Leaf, from_equinox, from_functions
from tunbridge.model.networks.architectures.mlp import ACTIVATIONS


def test_mlp_is_the_equation(key):
    network = tb.networks.MLP((4, 3), "relu", outputs=2)
    x = jax.random.normal(key, (6, 5))
    weights = jax.jit(network.init)(key, x)
    assert tree.paths(weights) == [f"layers/{i}/{name}" for i in range(3) for name in ("bias", "weight")]
    z = x
    for i, layer in enumerate(weights["layers"]):
        z = z @ layer["weight"] + layer["bias"][None]
        z = jnp.maximum(z, 0) if i < 2 else z
    np.testing.assert_allclose(network.apply(weights, x), z, rtol=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_runs(activation, key):
    network = tb.networks.MLP((4,), activation, outputs=1)
    x = jax.random.normal(key, (6, 5))
    assert jnp.isfinite(network.apply(jax.jit(network.init)(key, x), x)).all()


@pytest.mark.slow
def test_fan_in_follows_the_axes_and_not_the_shape(key):
    x = jnp.zeros((2, 7))
    mlp = tb.networks.MLP((3,), outputs=1)
    module = from_equinox(eqx.nn.MLP(7, 1, 3, 1, key=key))
    functions = from_functions(
        lambda key, x: {"out_in": jnp.zeros((3, 7)), "b": jnp.zeros(3)},
        lambda w, x: x @ w["out_in"].T + w["b"][None],
        {"out_in": Leaf("weight", inputs=(1,), outputs=(0,)), "b": Leaf("bias", outputs=(0,))},
    )
    for network, wanted in ((mlp, [1, 7, 1, 3]), (module, [7, 1, 3, 1]), (functions, [1, 7])):
        weights = network.init(key, x)
        leaves = zip(jax.tree.leaves(network.layout(weights)), jax.tree.leaves(weights), strict=True)
        assert [leaf.fan_in(weight.shape) for leaf, weight in leaves] == wanted


def test_equinox_layers_have_their_roles(key):
    class Net(eqx.Module):
        embed: eqx.nn.Embedding
        conv: eqx.nn.Conv2d
        norm: eqx.nn.LayerNorm
        cell: eqx.nn.LSTMCell
        drop: eqx.nn.Dropout
        own: jax.Array

        def __init__(self, key):
            self.embed = eqx.nn.Embedding(11, 5, key=key)
            self.conv = eqx.nn.Conv2d(3, 8, (2, 5), key=key)
            self.norm = eqx.nn.LayerNorm(4)
            self.cell = eqx.nn.LSTMCell(3, 2, key=key)
            self.drop = eqx.nn.Dropout(0.5)
            self.own = jnp.zeros(3)

        def __call__(self, x):
            return self.drop(x[:1])

    network = from_equinox(Net(key))
    leaves = dict(tree.flatten_with_paths(network.layout(network.weights)))
    shapes = dict(tree.flatten_with_paths(jax.tree.map(jnp.shape, network.weights), is_leaf=lambda n: type(n) is tuple))
    assert leaves["embed/weight"].role == "embedding"
    assert leaves["conv/weight"].fan_in(shapes["conv/weight"]) == 3 * 2 * 5
    assert leaves["conv/bias"].role == "bias"
    assert leaves["norm/weight"].role == "norm"
    assert leaves["cell/weight_ih"].fan_in(shapes["cell/weight_ih"]) == 3
    assert leaves["cell/weight_hh"].fan_in(shapes["cell/weight_hh"]) == 2
    assert leaves["own"].role == "unknown"
    x = jnp.ones((4, 3))
    np.testing.assert_array_equal(network.apply(network.weights, x), x[:, :1])  # dropout is off


def test_equinox_weights_are_redrawn_with_a_new_key_and_kept_on_request(key):
    module = eqx.nn.MLP(3, 1, 50, 1, key=key)
    network = from_equinox(module)
    one, two = (network.init(k, jnp.zeros((2, 3))) for k in jax.random.split(key))
    assert not np.allclose(one.layers[0].weight, two.layers[0].weight)
    assert float(jnp.std(one.layers[1].weight)) == pytest.approx(1 / np.sqrt(50), rel=0.4)
    x = jax.random.normal(key, (4, 3))
    np.testing.assert_allclose(network.apply(network.weights, x), jax.vmap(module)(x), rtol=1e-6)


@pytest.mark.slow
def test_the_same_weights_give_the_same_log_density_through_every_adapter(key, x64):
    x = jax.random.normal(key, (9, 4))
    data = tb.Data(x, jnp.sin(x[:, 0]))
    module = eqx.nn.MLP(4, 1, 6, 1, activation=jnp.tanh, key=key)
    (a, b) = module.layers
    own = {"layers": [{"weight": a.weight.T, "bias": a.bias}, {"weight": b.weight.T, "bias": b.bias}]}
    mlp, adapted = tb.networks.MLP((6,)), from_equinox(module)
    functions = from_functions(mlp.with_outputs(1).init, mlp.with_outputs(1).apply, mlp.layout(own))
    values = []
    for network, weights in ((mlp, own), (adapted, adapted.weights), (functions, own)):
        model = tb.Model(network, tb.priors.Normal(tb.priors.fan_in(1.5)), tb.likelihoods.Gaussian(0.3))
        bound, rows = model.bind(data)
        values.append(float(tb.Target(bound, 9.0).log_density(tb.Params(weights), rows)))
    assert values[1] == pytest.approx(values[0], abs=1e-9)
    assert values[2] == pytest.approx(values[0], abs=1e-9)


def test_mutable_state_is_refused_by_name(key):
    class Net(eqx.Module):
        norm: eqx.nn.BatchNorm

        def __init__(self):
            self.norm = eqx.nn.BatchNorm(3, axis_name="batch", mode="ema")

        def __call__(self, x):
            return x

    with pytest.raises(tb.InputError, match=r"without mutable state; got state in norm \(BatchNorm\)"):
        from_equinox(Net())
    with pytest.raises(tb.InputError, match=r"an equinox\.Module"):
        from_equinox(lambda x: x)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tb.networks.MLP((5, 0)), "at least one unit"),
        (lambda: tb.networks.MLP((5,), outputs=0), "at least one unit"),
        (lambda: tb.networks.MLP((5,), "tahn"), "an activation of tanh"),
        (lambda: from_functions(lambda k, x: 0, lambda w, x: x, {"w": "weight"}), r"a pytree of tb\.networks\.Leaf"),
    ],
)
def test_bad_networks_are_refused(make, said):
    with pytest.raises(tb.InputError, match=said):
        make()


def test_a_layout_of_another_structure_is_refused(key):
    network = from_functions(lambda k, x: {"w": jnp.zeros((1, 1))}, lambda w, x: x @ w["w"], {"v": Leaf("weight")})
    model = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(1.0))
    with pytest.raises(tb.InputError, match="a layout of the weights' structure"):
        tb.MAP().fit(model, tb.Data([[1.0]], [1.0]), key=key)
