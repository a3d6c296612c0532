"""PyTorch modules: the same numbers in JAX, the same names, and everything unknown named at once.

What PyTorch answered is on file (`torch_recorded`), so that most of this needs no PyTorch. Where it is installed the
file is compared with it.
"""

import importlib.util
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from model.networks.adapters.torch import torch_recorded
from toys import quick
from tunbridge.core import tree
from tunbridge.model.networks import Leaf, from_torch
from tunbridge.model.networks.adapters.torch.layers import LAYERS

live = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
NAMES = torch_recorded.names()
DEEP = {"attentive", "two grus", "LSTM two without bias", "GRU two without bias"}
"""Modules whose gradients take more than a second to compile."""


def leaves_of(network):
    shapes = dict(tree.flatten_with_paths(network.weights))
    return {path: (leaf, shapes[path].shape) for path, leaf in tree.flatten_with_paths(network.layout(network.weights))}


def fan_ins(network):
    return {path: leaf.fan_in(shape) for path, (leaf, shape) in leaves_of(network).items() if leaf.role == "weight"}


def roles(network):
    return {path: leaf.role for path, (leaf, _) in leaves_of(network).items()}


def recorded(name):
    return torch_recorded.read(name).network


def test_every_layer_is_on_file():
    assert set(LAYERS) <= set(NAMES)


@pytest.mark.parametrize("name", quick(NAMES, set(NAMES) - DEEP))
def test_outputs_and_gradients_are_torch_s(name):
    network, x, outputs, gradients = torch_recorded.read(name)

    def total(weights, x):
        outputs = network.apply(weights, x)
        return jnp.sum(outputs), outputs

    found, got = jax.jit(jax.grad(total, has_aux=True))(network.weights, x)
    np.testing.assert_allclose(got, outputs, rtol=1e-4, atol=1e-5)
    found = dict(tree.flatten_with_paths(found))
    assert set(found) == set(gradients)
    for path, wanted in gradients.items():
        np.testing.assert_allclose(found[path], wanted, rtol=2e-4, atol=2e-4 * np.abs(wanted).max() + 1e-5)


@live
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_on_file_is_what_torch_answers(name):
    now, then = torch_recorded.record(name), torch_recorded.read(name)
    assert now.network.graph == then.network.graph
    assert now.network.leaves == then.network.leaves
    np.testing.assert_array_equal(now.x, then.x)
    np.testing.assert_allclose(now.outputs, then.outputs, rtol=1e-4, atol=1e-5)
    for one, other in zip(
        *(jax.tree.leaves((r.network.weights, r.network.constants)) for r in (now, then)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@live
def test_every_module_is_on_file():
    from model.networks.adapters.torch.torch_modules import MODULES

    assert set(NAMES) == set(MODULES)


def test_convolutions_have_windows_and_norms_have_statistics():
    network = recorded("pictures")
    assert fan_ins(network) == {"0/weight": 2 * 2 * 3, "9/weight": 36}
    assert leaves_of(network)["0/weight"][0] == Leaf("weight", inputs=(1,), outputs=(0,), shared=(2, 3))
    assert roles(network)["1/weight"] == roles(network)["6/bias"] == "norm"
    assert set(network.constants["1"]) == {"running_mean", "running_var"}
    assert fan_ins(recorded("series")) == {"0/weight": 4 * 4}


def test_parameters_outside_layers_have_no_role_and_buffers_are_constants():
    network = recorded("functional")
    assert roles(network) == {"kernel": "unknown", "scale": "unknown"}
    assert set(network.constants) == {"shift"}


ONE = {"weight_hh_l0": 4, "weight_ih_l0": 6}
TWO = {**ONE, "weight_hh_l1": 4, "weight_ih_l1": 8}
BOTH = {**TWO, **{f"{name}_reverse": fan for name, fan in TWO.items()}}


@pytest.mark.parametrize(("name", "fans"), [("one lstm", ONE), ("two grus", BOTH)])
def test_recurrent_weights_have_the_fan_in_of_their_own_inputs(name, fans):
    network = recorded(name)
    cells = {path.removeprefix("cells/"): fan for path, fan in fan_ins(network).items() if path.startswith("cells/")}
    assert cells == fans
    assert set(roles(network).values()) == {"weight", "bias"}


def test_tied_weights_are_one():
    network = recorded("attentive")
    assert "tied" not in network.weights
    assert roles(network)["words/weight"] == "embedding"
    fans = fan_ins(network)
    assert fans["attend/in_proj_weight"] == fans["attend/out_proj/weight"] == 6
    assert fans["before/linear2/weight"] == fans["after/layers/1/linear2/weight"] == 8
    assert "unknown" not in roles(network).values()


def test_frozen_parameters_are_constants():
    network = recorded("frozen")
    assert set(network.weights) == {"1"}
    assert set(network.constants) == {"0"}


def test_a_network_with_pooling_is_fitted(key):
    network, x, *_ = torch_recorded.read("pooled")
    model = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
    posterior = tb.MAP(train=tb.Train(5)).fit(model, tb.Data(x, [0.0, 1.0, 2.0]), key=key, progress=False)
    assert posterior.predict(x).mean.shape == (3, 1)


@pytest.mark.slow
def test_a_converted_network_is_unpickled_and_run_without_torch(tmp_path):
    network, x, outputs, _ = torch_recorded.read("dense")
    (tmp_path / "network").write_bytes(pickle.dumps((network, x)))
    code = (
        "import pickle, sys; sys.modules['torch'] = None\n"
        f"network, x = pickle.load(open({str(tmp_path / 'network')!r}, 'rb'))\n"
        "print(network.apply(network.weights, x).sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert float(done.stdout) == pytest.approx(float(outputs.sum()), rel=1e-5), done.stderr


def _unknown():
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(6, 6), nn.ConvTranspose1d(5, 5, 2))
            self.ring = nn.Conv1d(5, 5, 3, padding_mode="circular")
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))
            self.heard = nn.Linear(6, 6)
            self.heard.register_forward_hook(lambda *_: None)

        def forward(self, x):
            x = torch.sort(self.ring(self.block(x)))[0].cumprod(1) + self.heard(x)
            return x.to(x.device).sum(dtype=torch.float32)

    return Net()


@live
def test_everything_unknown_is_named_at_once():
    with pytest.raises(tb.InputError) as caught:
        from_torch(_unknown())
    named = (
        "normed (parametrizations), heard (hooks), block.1 (ConvTranspose1d), "
        "ring (Conv1d with padding_mode='circular'), function sort, method cumprod, "
        "attribute device, method to, the argument torch.float32"
    )
    assert named in str(caught.value)


def _branches():
    from torch import nn

    class Branches(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    return Branches()


def _overwrites(again):
    from torch import nn

    class Overwrites(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            view = x.view(-1, 3, 2)
            x = self.relu(x)
            return x + (view.flatten(1) if again else 0)

    return Overwrites()


@live
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda nn: nn.Linear, r"a torch\.nn\.Module; got type"),
        (lambda _: _branches(), r"torch\.fx can trace"),
        (lambda _: _overwrites(True), r"relu \(writes in place to a value that is read again\)"),
        (lambda nn: nn.Sequential(nn.LSTM(6, 4, proj_size=2)), r"0 \(LSTM with proj_size=2\)"),
        (lambda nn: nn.TransformerEncoderLayer(6, 2, activation=nn.functional.tanh), "a custom activation"),
    ],
)
def test_what_cannot_be_a_network_is_refused(make, said):
    from torch import nn

    with pytest.raises(tb.InputError, match=said):
        from_torch(make(nn))


@live
def test_writing_in_place_is_allowed_where_nobody_reads_the_old_value():
    network, x = from_torch(_overwrites(False)), np.linspace(-1.0, 1.0, 24, dtype="float32").reshape(4, 6)
    np.testing.assert_array_equal(network.apply(network.weights, x), np.maximum(x, 0))
