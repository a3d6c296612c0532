"""Every layer that `from_torch` knows: outputs and gradients, under jit and without, are PyTorch's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.core import tree
from tunbridge.model.networks import from_torch
from tunbridge.model.networks.torch_layers import LAYERS

torch = pytest.importorskip("torch")
nn = torch.nn

RNG = np.random.default_rng(0)
PICTURES = RNG.normal(size=(3, 4, 9, 8)).astype("float32")
SERIES = RNG.normal(size=(3, 4, 6)).astype("float32")
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
    "Embedding": (RNG.integers(0, 7, (3, 5)), {"num_embeddings": 7, "embedding_dim": 4}),
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
SPECIAL = {name for name, layer in LAYERS.items() if layer.arrays is None or layer.arrays or "pool" in layer.function}


class Net(nn.Module):
    """One layer between products with a weight, so that gradients go through it."""

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


def made(name):
    torch.manual_seed(0)
    x, options = OPTIONS.get(name, (SERIES, {}))
    module = Net(getattr(nn, name)(**options)).eval()
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.3, 1.5)
    return module, x


def test_layers_with_options_of_their_own_are_all_here():
    assert set(OPTIONS) <= set(LAYERS)
    assert set(OPTIONS) >= SPECIAL


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_outputs_and_gradients_are_torch_s_under_jit_and_without(name):
    module, x = made(name)
    network = from_torch(module)
    outputs = module(torch.as_tensor(x))
    outputs.sum().backward()
    gradients = {path.replace(".", "/"): p.grad.numpy() for path, p in module.named_parameters()}

    def total(weights, x):
        return jnp.sum(network.apply(weights, x))

    for run in (jax.jit, lambda function: function):
        got = run(lambda weights, x: network.apply(weights, x))(network.weights, jnp.asarray(x))
        np.testing.assert_allclose(got, outputs.detach().numpy(), rtol=1e-4, atol=1e-5)
        found = dict(tree.flatten_with_paths(run(jax.grad(total))(network.weights, jnp.asarray(x))))
        assert set(found) == set(gradients)
        for path, gradient in gradients.items():
            np.testing.assert_allclose(found[path], gradient, rtol=2e-4, atol=2e-4 * np.abs(gradient).max() + 1e-5)


def test_a_network_with_pooling_is_fitted(key):
    module = nn.Sequential(
        nn.Conv2d(4, 3, 2), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6, 1)
    )
    model = tb.Model(from_torch(module), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
    posterior = tb.MAP(train=tb.Train(5)).fit(model, tb.Data(PICTURES, [0.0, 1.0, 2.0]), key=key, progress=False)
    assert posterior.predict(PICTURES).mean.shape == (3, 1)
