"""One network, 3-5-4-2 with tanh, through every adapter."""

import itertools
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from model.networks.adapters.torch import torch_recorded
from tunbridge.core import tree

WIDTHS = (3, 5, 4, 2)
RNG = np.random.default_rng(7)
WEIGHTS = [(RNG.normal(size=(a, b)), RNG.normal(size=b)) for a, b in itertools.pairwise(WIDTHS)]
WEIGHTS = [(kernel.astype(np.float32), bias.astype(np.float32)) for kernel, bias in WEIGHTS]
X = RNG.normal(size=(9, 3)).astype(np.float32)
DATA = tb.Data(X, RNG.normal(size=(9, 2)).astype(np.float32))


def own():
    return {"layers": [{"weight": jnp.asarray(kernel), "bias": jnp.asarray(bias)} for kernel, bias in WEIGHTS]}


def by_equinox():
    layers = []
    for kernel, bias in WEIGHTS:
        layer = eqx.nn.Linear(*kernel.shape, key=jax.random.key(0))
        layer = eqx.tree_at(lambda layer: (layer.weight, layer.bias), layer, (jnp.asarray(kernel.T), jnp.asarray(bias)))
        layers += [layer, eqx.nn.Lambda(jnp.tanh)]
    net = eqx.nn.Sequential(layers[:-1])
    return tb.networks.from_equinox(net), lambda x: jax.vmap(net)(x)


def by_linen():
    import flax.linen as nn

    net = nn.Sequential([nn.Dense(5), nn.tanh, nn.Dense(4), nn.tanh, nn.Dense(2)])
    params = {f"layers_{2 * i}": {"kernel": kernel, "bias": bias} for i, (kernel, bias) in enumerate(WEIGHTS)}
    network = tb.networks.from_flax(net, X[:1], variables={"params": params})
    return network, lambda x: net.apply({"params": params}, x)


def by_nnx():
    from flax import nnx

    def layer(kernel, bias):
        kept = {"kernel_init": lambda *_: jnp.asarray(kernel), "bias_init": lambda *_: jnp.asarray(bias)}
        return nnx.Linear(*kernel.shape, **kept, rngs=nnx.Rngs(0))

    first, second, third = (layer(*pair) for pair in WEIGHTS)
    net = nnx.Sequential(first, nnx.tanh, second, nnx.tanh, third)
    return tb.networks.from_flax(net), net


def by_keras():
    import keras
    from keras.layers import Dense

    net = keras.Sequential([keras.Input((3,)), Dense(5, "tanh"), Dense(4, "tanh"), Dense(2)])
    net.set_weights([array for pair in WEIGHTS for array in pair])
    return tb.networks.from_keras(net), net


def by_torch():
    """What is on file: test_torch.py compares it with PyTorch."""
    network, _, outputs, _ = torch_recorded.read("dense")
    return network, lambda x: outputs


ADAPTERS = {"equinox": by_equinox, "linen": by_linen, "nnx": by_nnx, "keras": by_keras, "torch": by_torch}


@pytest.fixture(scope="module", params=ADAPTERS)
def adapted(request):
    """(network, the framework's own forward pass)."""
    return ADAPTERS[request.param]()


def model_of(network):
    return tb.Model(network, tb.priors.Normal(tb.priors.fan_in(1.0)), tb.likelihoods.Gaussian(0.5))


def log_density(network, weights):
    model, rows = model_of(network).bind(DATA)
    target = tb.Target(model, float(rows.num))
    return float(jax.jit(lambda params: target.log_density(params, rows))(tb.Params(weights)))


def test_the_same_weights_give_the_same_log_density_through_every_adapter(adapted):
    network, _ = adapted
    wanted = log_density(tb.networks.MLP((5, 4)), own())
    assert log_density(network, network.weights) == pytest.approx(wanted, rel=1e-5)


def test_the_outputs_are_the_framework_s_own(adapted):
    network, forward = adapted
    with jax.numpy_rank_promotion("allow"):
        wanted = np.asarray(forward(X))
    draws = tree.stack([network.weights, jax.tree.map(jnp.zeros_like, network.weights)])
    outputs = jax.jit(jax.vmap(lambda weights: network.apply(weights, X)))(draws)
    np.testing.assert_allclose(outputs[0], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs[1], np.zeros_like(wanted))


def test_fan_in_follows_the_axes_of_every_framework(adapted):
    network, _ = adapted
    shapes = jax.eval_shape(network.init, jax.random.key(0), X)
    leaves = zip(jax.tree.leaves(network.layout(shapes)), jax.tree.leaves(shapes), strict=True)
    by_size = {leaf.fan_in(shape.shape): shape.size for leaf, shape in leaves if leaf.role == "weight"}
    assert by_size == {3: 15, 5: 20, 4: 8}


def test_fresh_weights_have_the_structure_of_the_framework_s_own(adapted):
    network, _ = adapted
    fresh = jax.eval_shape(network.init, jax.random.key(0), X)
    own = jax.eval_shape(lambda: network.weights)
    assert str(fresh) == str(own)


def test_a_fit_starts_from_the_framework_s_own_weights(adapted, key):
    network, _ = adapted
    init = tb.Params(network.weights)
    posterior = tb.MAP(step_size=1e-6, train=tb.Train(2)).fit(model_of(network), DATA, key=key, init=init)
    moved = tree.ravel(posterior.params.weights) - tree.ravel(network.weights)
    assert 0 < float(jnp.max(jnp.abs(moved))) < 1e-5


@pytest.mark.parametrize("name", ["flax", "keras", "torch"])
def test_a_missing_framework_is_a_sentence_with_the_command(name, monkeypatch):
    for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(tb.InputError, match=rf'needs; got none .* Run pip install "tunbridge\[{name}\]"\.'):
        getattr(tb.networks, f"from_{name}")(None)


def test_networks_import_no_framework():
    code = "import sys, tunbridge.model.networks; print([n for n in ('flax', 'keras', 'torch') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
