"""Sites found in a network's program give its derivative, whatever library the network is written in."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.flatten_util import ravel_pytree

import tunbridge as tb
from toys import quick
from tunbridge.model.networks.programs import sites
from tunbridge.model.networks.programs.evaluation import Evaluation


class Convolutions(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3), strides=(2, 1))(x))
        x = nn.tanh(nn.LayerNorm()(nn.Conv(3, (2, 3), padding="VALID", use_bias=False)(x)))
        return nn.Dense(2)(x.reshape(x.shape[0], -1))


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.RNN(nn.OptimizedLSTMCell(4))(x)[:, -1])


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Embed(7, 4)(x.astype(jnp.int32))
        return nn.Dense(2)(nn.LayerNorm()(nn.MultiHeadDotProductAttention(2)(x, x)).mean(1))


class Tied(nn.Module):
    @nn.compact
    def __call__(self, x):
        table = nn.Embed(7, 4)
        return table.attend(nn.tanh(table(x.astype(jnp.int32)))).mean(1)


def _linen(module, x):
    return module.apply, jax.jit(module.init)(jax.random.key(1), x[None])


def _mlp(x):
    network = tb.networks.MLP((5, 4), outputs=2)
    return network.apply, jax.jit(network.init)(jax.random.key(1), x[None])


def _by_hand(x):
    keys = iter(jax.random.split(jax.random.key(1), 9))
    shapes = {"q": (4, 3), "k": (4, 3), "v": (4, 3), "out": (3, 2)}
    weights = {name: jax.random.normal(next(keys), shape) for name, shape in shapes.items()}

    def apply(w, x):
        q, k, v = (x @ w[name] for name in "qkv")
        mixed = jax.nn.softmax(jnp.einsum("bik,bjk->bij", q, k), axis=-1) @ v
        return mixed.mean(1) @ w["out"]

    return apply, weights


def _unrolled(x):
    keys = iter(jax.random.split(jax.random.key(1), 4))
    shapes = {"u": (4, 5), "v": (5, 5), "b": (5,), "o": (5, 2)}
    weights = {name: jax.random.normal(next(keys), shape) for name, shape in shapes.items()}

    def apply(w, x):
        h = jnp.zeros((len(x), 5))
        for t in range(3):
            h = jnp.tanh(x[:, t] @ w["u"] + h @ w["v"] + w["b"][None])
        return h @ w["o"]

    return apply, weights


def _equinox(x):
    key = jax.random.key(1)
    parts = (eqx.nn.MultiheadAttention(2, 4, use_query_bias=True, key=key), eqx.nn.Linear(4, 2, key=key))
    arrays, static = eqx.partition(parts, eqx.is_array)

    def apply(w, x):
        attention, linear = eqx.combine(w, static)
        return jax.vmap(lambda row: jax.vmap(linear)(attention(row, row, row)).mean(0))(x)

    return apply, arrays


def _normalised(x):
    keys = jax.random.split(jax.random.key(1))
    weights = {"g": jnp.ones(4), "v": jax.random.normal(keys[0], (4, 4)), "o": jax.random.normal(keys[1], (4, 2))}

    def apply(w, x):
        direction = w["v"] / jnp.linalg.norm(w["v"], axis=0)[None]
        return jnp.tanh(x[:, 0] @ (w["g"][None] * direction)) @ w["o"]

    return apply, weights


PICTURE = jax.random.normal(jax.random.key(0), (6, 5, 2))
ROWS, WORDS = jax.random.normal(jax.random.key(0), (3, 4)), jnp.array([0.0, 3.0, 3.0])
NETWORKS = {  # the network, its input, shapes of its groups, how many weights are left
    "mlp": (_mlp, ROWS[0], [(5, 5), (6, 4), (5, 2)], 0),
    "convolutions": (lambda x: _linen(Convolutions(), x), PICTURE, [(19, 4), (24, 3), (19, 2)], 6),
    "lstm": (lambda x: _linen(Recurrent(), x), ROWS, [(5, 16), (4, 16), (5, 2)], 0),
    "attention": (lambda x: _linen(Attention(), x), WORDS, [(7, 4), (5, 4), (5, 4), (5, 4), (5, 4), (5, 2)], 8),
    "equinox attention": (_equinox, ROWS, [(5, 4), (4, 4), (4, 4), (4, 4), (5, 2)], 0),
    "attention by hand": (_by_hand, ROWS, [(4, 3), (4, 3), (4, 3), (3, 2)], 0),
    "tied over time": (_unrolled, ROWS, [(4, 5), (5, 5), (5, 2)], 5),
    "tied both ways": (lambda x: _linen(Tied(), x), WORDS, [], 28),
    "normalised weights": (_normalised, ROWS, [(4, 2)], 20),
}  # fmt: skip


@pytest.mark.parametrize("name", quick(NETWORKS, ("mlp", "tied both ways")))
def test_activations_and_cotangents_make_up_the_derivative(name):
    make, x, shapes, left = NETWORKS[name]
    apply, weights = make(x)
    found = sites.find(apply, weights, x)
    assert sorted(group.index.shape for group in found.groups) == sorted(shapes)
    assert len(found.rest) == left
    flat, back = ravel_pytree(weights)

    @jax.jit
    def both(weights, x):
        evaluation = Evaluation(found, weights, x)
        cotangents, rest = evaluation.cotangents(jnp.eye(len(evaluation.outputs)))
        derivative = jnp.zeros((len(rest), flat.size)).at[:, found.rest].set(rest)
        for group, a, g in zip(found.groups, evaluation.activations, cotangents, strict=True):
            outer = jnp.einsum("pi,opj->oij", a, g).reshape(len(rest), -1)
            derivative = derivative.at[:, group.index.ravel()].set(outer)
        return evaluation.outputs, derivative, jax.jacobian(lambda w: apply(back(w), x[None])[0])(flat)

    outputs, derivative, wanted = both(weights, x)
    np.testing.assert_allclose(outputs, apply(weights, x[None])[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(derivative, wanted, rtol=1e-4, atol=1e-5)


def test_last_layer_is_the_matrix_that_is_used_last():
    apply, weights = _linen(Recurrent(), ROWS)
    mask = tb.subsets.LastLayer().chosen(weights, sites.find(apply, weights, ROWS))
    wanted = jax.tree.map(jnp.zeros_like, weights)
    wanted["params"]["Dense_0"] = jax.tree.map(jnp.ones_like, wanted["params"]["Dense_0"])
    np.testing.assert_array_equal(mask, ravel_pytree(wanted)[0] > 0)
