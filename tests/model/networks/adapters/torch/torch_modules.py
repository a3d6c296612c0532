"""PyTorch modules that `from_torch` reads, with inputs for each: one of every layer, and networks made of them."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from model.networks.adapters.test_adapters import WEIGHTS, X
from tunbridge.model.networks.adapters.torch.functions import ACTIVATIONS
from tunbridge.model.networks.adapters.torch.layers import LAYERS

RNG = np.random.default_rng(0)
PICTURES = RNG.normal(size=(3, 4, 9, 8)).astype("float32")
SERIES = RNG.normal(size=(3, 4, 6)).astype("float32")
ROWS = RNG.normal(size=(4, 6)).astype("float32")
WORDS = RNG.integers(0, 7, (3, 5)).astype("int32")
OPTIONS = {
    "AdaptiveAvgPool1d": (SERIES, {"output_size": 4}),
    "AdaptiveAvgPool2d": (PICTURES, {"output_size": (2, 3)}),
    "AvgPool1d": (SERIES, {"kernel_size": 2, "padding": 1}),
    "AvgPool2d": (PICTURES, {"kernel_size": (3, 2), "padding": (1, 0), "count_include_pad": False}),
    "BatchNorm1d": (SERIES, {"num_features": 4}),
    "BatchNorm2d": (PICTURES, {"num_features": 4}),
    "Conv1d": (SERIES, {"in_channels": 4, "out_channels": 5, "kernel_size": 3, "padding": "same"}),
    "Conv2d": (PICTURES, {"in_channels": 4, "out_channels": 6, "kernel_size": (2, 3), "stride": 2, "groups": 2}),
    "Dropout2d": (PICTURES, {}),
    "Dropout3d": (PICTURES[..., None], {}),
    "Embedding": (WORDS, {"num_embeddings": 7, "embedding_dim": 4}),
    "Flatten": (PICTURES, {}),
    "GRU": (SERIES, {"input_size": 6, "hidden_size": 4, "batch_first": True, "bidirectional": True}),
    "GroupNorm": (PICTURES, {"num_groups": 2, "num_channels": 4}),
    "LSTM": (SERIES, {"input_size": 6, "hidden_size": 4, "batch_first": True, "num_layers": 2}),
    "LayerNorm": (SERIES, {"normalized_shape": (4, 6)}),
    "Linear": (SERIES, {"in_features": 6, "out_features": 2}),
    "LogSoftmax": (SERIES, {"dim": 1}),
    "MaxPool1d": (SERIES, {"kernel_size": 2, "stride": 1, "padding": 1}),
    "MaxPool2d": (PICTURES, {"kernel_size": (2, 3), "stride": (1, 2), "padding": 1, "dilation": (2, 1)}),
    "MultiheadAttention": (SERIES, {"embed_dim": 6, "num_heads": 2, "batch_first": True}),
    "PReLU": (SERIES, {"num_parameters": 4}),
    "Softmax": (SERIES, {"dim": 1}),
    "TransformerEncoderLayer": (SERIES, {"d_model": 6, "nhead": 2, "dim_feedforward": 8, "batch_first": True}),
}


class OneLayer(nn.Module):
    """A layer between products with a weight, so that gradients go through it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.scale = nn.Parameter(torch.tensor([1.5]))

    def forward(self, x):
        if isinstance(self.layer, nn.Embedding):
            z = self.layer(x)
        elif isinstance(self.layer, nn.MultiheadAttention):
            z = self.layer(self.scale * x, x, x)[0]
        elif isinstance(self.layer, nn.LSTM | nn.GRU):
            z = self.layer(self.scale * x)[0]
        else:
            z = self.layer(self.scale * x)
        return (self.scale * z * z).flatten(1)


class Activations(nn.Module):
    """Every activation, where it bends."""

    def __init__(self):
        super().__init__()
        special = {"GLU": {"dim": 2}, "Softmax": {"dim": 1}, "LogSoftmax": {"dim": 1}, "Softplus": {"beta": 2.0}}
        names = sorted(name for name, layer in LAYERS.items() if layer.function in ACTIVATIONS)
        self.layers = nn.ModuleList(getattr(nn, name)(**special.get(name, {})) for name in names)
        self.scale = nn.Parameter(torch.tensor([3.0]))

    def forward(self, x):
        return torch.cat([layer(self.scale * x) for layer in self.layers], dim=-1).flatten(1)


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


class Recurrent(nn.Module):
    """What a recurrent layer says of the first and of the last step."""

    def __init__(self, cell, **options):
        super().__init__()
        self.cells = cell(6, 4, batch_first=True, **options)
        self.out = nn.Linear(self.cells(torch.zeros(1, 1, 6))[0].shape[-1], 2)

    def forward(self, x):
        z, _ = self.cells(x)
        return self.out(z[:, -1] + z[:, 0])


class Cells(nn.Module):
    """Every output of a recurrent layer."""

    def __init__(self, cell, **options):
        super().__init__()
        self.cells = cell(6, 4, **{"batch_first": True, **options})

    def forward(self, x):
        return self.cells(x)[0]


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


class Soft(nn.Module):
    """Functions whose axis PyTorch chooses by the number of axes."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return F.softmax(self.scale * x) + x.var(False)


def pictures():
    return nn.Sequential(
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


def series():
    return nn.Sequential(
        nn.Conv1d(4, 7, 4, padding="same", bias=False),
        nn.BatchNorm1d(7),
        nn.MaxPool1d(2),
        nn.AvgPool1d(2, padding=1),
        nn.LayerNorm((7, 2)),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.BatchNorm1d(7),
    )


def dense():
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    for layer, (kernel, bias) in zip(net[::2], WEIGHTS, strict=True):
        layer.weight.data, layer.bias.data = torch.as_tensor(kernel.T.copy()), torch.as_tensor(bias)
    return net


def frozen():
    return nn.Sequential(nn.Linear(6, 5).requires_grad_(False), nn.Linear(5, 2))


def pooled():
    parts = (nn.Conv2d(4, 3, 2), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6, 1))
    return nn.Sequential(*parts)


def one_layer(name):
    x, options = OPTIONS.get(name, (SERIES, {}))
    return lambda: OneLayer(getattr(nn, name)(**options)), x


FORMS = {
    "steps first": {"batch_first": False},
    "two without bias": {"bias": False, "bidirectional": True, "num_layers": 2},
}
MODULES = {
    **{name: one_layer(name) for name in sorted(LAYERS)},
    **{
        f"{cell} {form}": (lambda cell=cell, options=options: Cells(getattr(nn, cell), **options), SERIES)
        for cell in ("LSTM", "GRU")
        for form, options in FORMS.items()
    },
    **{
        f"softmax of {len(shape)} axes": (Soft, RNG.normal(size=shape).astype("float32"))
        for shape in ((4, 3), (4, 3, 2), (2, 3, 2, 2))
    },
    "activations": (Activations, SERIES),
    "attentive": (Attentive, RNG.integers(0, 11, (3, 5)).astype("int32")),
    "dense": (dense, X),
    "frozen": (frozen, ROWS),
    "functional": (Functional, PICTURES),
    "one lstm": (lambda: Recurrent(nn.LSTM), SERIES),
    "pictures": (pictures, PICTURES),
    "pooled": (pooled, PICTURES),
    "series": (series, SERIES),
    "two grus": (lambda: Recurrent(nn.GRU, num_layers=2, bidirectional=True), SERIES),
}
"""Factories of modules by name, with their inputs."""


def made(name):
    """A module with statistics that nobody would start from, and its inputs."""
    torch.manual_seed(0)
    factory, x = MODULES[name]
    module = factory()
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.3, 1.5)
    return module, x
