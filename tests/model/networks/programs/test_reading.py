import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import tunbridge as tb
from tunbridge.model.networks.layout import Leaf
from tunbridge.model.networks.programs.reading import reads_inputs


class Convolutional(eqx.Module):
    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.first = eqx.nn.Conv2d(2, 3, 3, key=keys[0])
        self.second = eqx.nn.Conv2d(3, 4, 3, key=keys[1])
        self.norm = eqx.nn.LayerNorm(4)
        self.head = eqx.nn.Linear(4, 5, key=keys[2])

    def __call__(self, x):
        z = jax.nn.relu(self.second(jax.nn.relu(self.first(x))))
        return self.head(self.norm(z.mean(axis=(1, 2))))


def _read(network, x):
    weights = jax.eval_shape(network.init, jax.random.key(0), x)
    layout = network.layout(weights)
    found = jax.tree.leaves(reads_inputs(network, weights, x, layout))
    roles = [leaf.role for leaf in jax.tree.leaves(layout)]
    return [reads for reads, role in zip(found, roles, strict=True) if role == "weight"]


@pytest.mark.parametrize(("hidden", "wanted"), [((), [True]), ((4,), [True, False]), ((5, 5), [True, False, False])])
def test_the_first_layer_of_a_perceptron_reads_the_inputs(hidden, wanted):
    assert _read(tb.networks.MLP(hidden, outputs=2), jnp.zeros((6, 5))) == wanted


def test_the_first_convolution_reads_the_inputs():
    network = tb.networks.from_equinox(Convolutional(jax.random.key(0)))
    assert _read(network, jnp.zeros((3, 2, 8, 8))) == [True, False, False]


def test_names_and_order_of_the_leaves_do_not_matter():
    """The first layer is called z, the last a; the inputs pass a norm before it."""

    def init(key, x):
        return {"a": jnp.ones((4, 1)), "norm": jnp.ones((3,)), "z": jnp.ones((3, 4))}

    def apply(w, x):
        return jnp.tanh((x * w["norm"][None]) @ w["z"]) @ w["a"]

    layout = {"a": Leaf("weight", (0,), (1,)), "norm": Leaf("norm", (), (0,)), "z": Leaf("weight", (0,), (1,))}
    assert _read(tb.networks.from_functions(init, apply, layout), jnp.zeros((2, 3))) == [False, True]


def test_inside_a_recurrent_loop_only_the_input_weights_read_the_inputs():
    def init(key, x):
        return {"hidden": jnp.ones((4, 4)), "in": jnp.ones((3, 4)), "out": jnp.ones((4, 2))}

    def apply(w, x):
        def cell(h, x_t):
            return jnp.tanh(x_t @ w["in"] + h @ w["hidden"]), None

        h, _ = jax.lax.scan(cell, jnp.zeros((x.shape[0], 4)), jnp.swapaxes(x, 0, 1))
        return h @ w["out"]

    layout = {name: Leaf("weight", (0,), (1,)) for name in ("hidden", "in", "out")}
    network = tb.networks.from_functions(init, apply, layout)
    assert _read(network, jnp.zeros((5, 7, 3))) == [False, True, False]
