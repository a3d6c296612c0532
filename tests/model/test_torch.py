"""PyTorch modules: the same numbers in JAX, the same names, and everything unknown named at once."""

import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.core import tree
from tunbridge.model.networks import Leaf, from_torch
from tunbridge.model.networks.torch_functions import ACTIVATIONS
from tunbridge.model.networks.torch_layers import LAYERS

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

RNG = np.random.default_rng(0)
PICTURES = RNG.normal(size=(3, 4, 9, 8)).astype("float32")
SERIES = RNG.normal(size=(3, 5, 6)).astype("float32")
ROWS = RNG.normal(size=(4, 6)).astype("float32")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def outputs(network, x):
    return jax.jit(lambda weights: network.apply(weights, x))(network.weights)


def assert_same(module, x):
    """The network, after its outputs are found to be the module's with statistics that nobody would start from."""
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.3, 1.5)
    network = from_torch(module)
    assert module.training
    with torch.no_grad():
        wanted = module.eval()(torch.as_tensor(x)).numpy()
    np.testing.assert_allclose(outputs(network, jnp.asarray(x)), wanted, rtol=1e-5, atol=2e-6)
    return network


def leaves_of(network):
    shapes = dict(tree.flatten_with_paths(network.weights))
    return {path: (leaf, shapes[path].shape) for path, leaf in tree.flatten_with_paths(network.layout(network.weights))}


def fan_ins(network):
    return {path: leaf.fan_in(shape) for path, (leaf, shape) in leaves_of(network).items() if leaf.role == "weight"}


def roles(network):
    return {path: leaf.role for path, (leaf, _) in leaves_of(network).items()}


def test_convolutions_pools_and_norms_are_torch_s():
    module = nn.Sequential(
        nn.Conv2d(4, 6, (2, 3), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, stride=1, padding=1),
        nn.AvgPool2d((2, 1), padding=(1, 0), count_include_pad=False),
        nn.Dropout2d(0.5),
        nn.GroupNorm(3, 6),
        nn.AdaptiveAvgPool2d((2, 3)),
        nn.Flatten(),
        nn.Linear(36, 2),
    )
    network = assert_same(module, PICTURES)
    assert fan_ins(network) == {"0/weight": 2 * 2 * 3, "9/weight": 36}
    assert leaves_of(network)["0/weight"][0] == Leaf("weight", inputs=(1,), outputs=(0,), shared=(2, 3))
    assert roles(network)["1/weight"] == roles(network)["6/bias"] == "norm"
    assert set(network.constants["1"]) == {"running_mean", "running_var"}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
def test_convolutions_in_one_dimension_are_torch_s():
    module = nn.Sequential(
        nn.Conv1d(5, 7, 4, padding="same", bias=False),
        nn.BatchNorm1d(7),
        nn.MaxPool1d(2),
        nn.AvgPool1d(2, padding=1),
        nn.LayerNorm((7, 2)),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.BatchNorm1d(7),
    )
    assert fan_ins(assert_same(module, SERIES)) == {"0/weight": 5 * 4}


def test_activations_as_layers_are_torch_s():
    names = sorted(name for name, layer in LAYERS.items() if layer.function in ACTIVATIONS)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            special = {"GLU": {"dim": 2}, "Softmax": {"dim": 1}, "LogSoftmax": {"dim": 1}, "Softplus": {"beta": 2.0}}
            self.layers = nn.ModuleList(getattr(nn, name)(**special.get(name, {})) for name in names)

        def forward(self, x):
            return torch.cat([layer(3 * x) for layer in self.layers], dim=-1).flatten(1)

    assert len(names) > 20
    assert_same(Net(), SERIES)


class Functional(nn.Module):
    """Layers as functions and as methods, and the arithmetic between them."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(6, 4, 2, 2))
        self.scale = nn.Parameter(torch.ones(6))
        self.register_buffer("shift", torch.ones(6))

    def forward(self, x, mask=None):
        if mask is not None:
            x = x * mask
        x = F.relu(F.conv2d(x, self.kernel, stride=(2, 1)), inplace=True)
        x = F.max_pool2d(x, 2) + F.avg_pool2d(x, 2).tanh() - F.adaptive_avg_pool2d(x, 1)
        x += 0.5
        x = x.permute(0, 2, 3, 1).reshape(x.size(0), -1, x.shape[1]) * self.scale + self.shift
        x = F.layer_norm(x, (6,)) @ x.transpose(1, 2)
        x = torch.cat([x, x.clamp(-1, 1)], dim=1).unsqueeze(1).squeeze(1)[:, 1:9:2]
        x = torch.softmax(x, dim=-1) / x.abs().clamp(min=1.0) - x[..., :1].expand(-1, -1, x.shape[2])
        z = F.dropout(x.flatten(1), 0.5, self.training)
        return torch.stack([z.mean(1), z.sum(dim=1), z.max(dim=1)[0], z.std(dim=-1)], dim=1) + z[:, [0, 2, 1, 1]] ** 2


def test_functions_methods_and_arithmetic_are_torch_s():
    network = assert_same(Functional(), PICTURES)
    assert roles(network) == {"kernel": "unknown", "scale": "unknown"}
    assert set(network.constants) == {"shift"}


class Recurrent(nn.Module):
    def __init__(self, cell, **options):
        super().__init__()
        self.cells = cell(6, 4, batch_first=True, **options)
        self.out = nn.Linear(self.cells(torch.zeros(1, 1, 6))[0].shape[-1], 2)

    def forward(self, x):
        z, _ = self.cells(x)
        return self.out(z[:, -1] + z[:, 0])


ONE = {"weight_hh_l0": 4, "weight_ih_l0": 6}
TWO = {**ONE, "weight_hh_l1": 4, "weight_ih_l1": 8}
BOTH = {**TWO, **{f"{name}_reverse": fan for name, fan in TWO.items()}}


@pytest.mark.parametrize(
    ("cell", "options", "fans"), [("LSTM", {}, ONE), ("GRU", {"num_layers": 2, "bidirectional": True}, BOTH)]
)
def test_recurrent_layers_are_torch_s(cell, options, fans):
    network = assert_same(Recurrent(getattr(nn, cell), **options), SERIES)
    cells = {path.removeprefix("cells/"): fan for path, fan in fan_ins(network).items() if path.startswith("cells/")}
    assert cells == fans
    assert set(roles(network).values()) == {"weight", "bias"}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"batch_first": False}, {"bias": False, "bidirectional": True, "num_layers": 2}])
@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_recurrent_layers_in_other_forms_are_torch_s(cell, options):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = getattr(nn, cell)(6, 4, **{"batch_first": True, **options})

        def forward(self, x):
            return self.cells(x)[0]

    assert_same(Net(), SERIES)


class Attentive(nn.Module):
    """A block by PyTorch, one by hand, and the encoder's two orders of norms."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.attend = nn.MultiheadAttention(6, 2, batch_first=True)
        self.qkv = nn.Linear(6, 18)
        self.before = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, norm_first=True, activation="gelu")
        after = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
        self.after = nn.TransformerEncoder(after, 2, norm=nn.LayerNorm(6), enable_nested_tensor=False)
        self.tied = nn.Linear(6, 11, bias=False)
        self.tied.weight = self.words.weight

    def forward(self, x):
        x = self.words(x)
        x = x + self.attend(x, x, x)[0] + self.attend(x, x, x, need_weights=False)[0]
        batch, time, width = x.shape
        heads = self.qkv(x).view(batch, time, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True).transpose(1, 2).flatten(2)
        return self.tied(self.after(self.before(x))).mean(dim=1)


def test_attention_is_torch_s_and_tied_weights_are_one():
    network = assert_same(Attentive(), RNG.integers(0, 11, (3, 5)))
    assert "tied" not in network.weights
    assert roles(network)["words/weight"] == "embedding"
    fans = fan_ins(network)
    assert fans["attend/in_proj_weight"] == fans["attend/out_proj/weight"] == 6
    assert fans["before/linear2/weight"] == fans["after/layers/1/linear2/weight"] == 8
    assert "unknown" not in roles(network).values()


def test_frozen_parameters_are_constants():
    module = nn.Sequential(nn.Linear(6, 5).requires_grad_(False), nn.Linear(5, 2))
    network = assert_same(module, ROWS)
    assert set(network.weights) == {"1"}
    assert set(network.constants) == {"0"}


def test_everything_unknown_is_named_at_once():
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

    with pytest.raises(tb.InputError) as caught:
        from_torch(Net())
    named = (
        "normed (parametrizations), heard (hooks), block.1 (ConvTranspose1d), "
        "ring (Conv1d with padding_mode='circular'), function sort, method cumprod, "
        "attribute device, method to, the argument torch.float32"
    )
    assert named in str(caught.value)


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Overwrites(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.again, self.relu = again, nn.ReLU(inplace=True)

    def forward(self, x):
        view = x.view(-1, 3, 2)
        x = self.relu(x)
        return x + (view.flatten(1) if self.again else 0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nn.Linear, r"a torch\.nn\.Module; got type"),
        (Branches, r"torch\.fx can trace"),
        (lambda: Overwrites(True), r"relu \(writes in place to a value that is read again\)"),
        (lambda: nn.Sequential(nn.LSTM(6, 4, proj_size=2)), r"0 \(LSTM with proj_size=2\)"),
        (lambda: nn.TransformerEncoderLayer(6, 2, activation=torch.tanh), "an activation of its own"),
    ],
)
def test_what_cannot_be_a_network_is_refused(make, said):
    with pytest.raises(tb.InputError, match=said):
        from_torch(make())


def test_writing_in_place_is_allowed_where_nobody_reads_the_old_value():
    network = from_torch(Overwrites(False))
    np.testing.assert_array_equal(network.apply(network.weights, ROWS), np.maximum(ROWS, 0))


def test_a_converted_network_is_unpickled_and_run_without_torch(tmp_path):
    network = assert_same(nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 2)), ROWS)
    (tmp_path / "network").write_bytes(pickle.dumps((network, ROWS)))
    code = (
        "import pickle, sys; sys.modules['torch'] = None\n"
        f"network, x = pickle.load(open({str(tmp_path / 'network')!r}, 'rb'))\n"
        "print(network.apply(network.weights, x).sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert float(done.stdout) == pytest.approx(float(outputs(network, ROWS).sum()), rel=1e-5), done.stderr


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2), (2, 3, 2, 2)])
def test_softmax_without_an_axis_takes_that_of_torch(shape):
    class Soft(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            return torch.nn.functional.softmax(self.scale * x) + x.var(False)

    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    network = tb.networks.from_torch(Soft())
    np.testing.assert_allclose(network.apply(network.weights, x), Soft()(torch.tensor(x)).detach(), rtol=1e-5)
