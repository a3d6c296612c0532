"""The functions behind PyTorch's layers, without PyTorch: outputs and gradients under jit are those without it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tunbridge.model.networks.torch_functions import ACTIVATIONS
from tunbridge.model.networks.torch_graph import FUNCTIONS
from tunbridge.model.networks.torch_layers import LAYERS

RNG = np.random.default_rng(0)
RECURRENT = {"hidden_size": 4, "num_layers": 1, "bidirectional": False, "batch_first": True}


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def cells(gates):
    shapes = {"weight_ih_l0": (4 * gates, 6), "weight_hh_l0": (4 * gates, 4), "bias_ih_l0": (4 * gates,)}
    return {name: normal(*shape) for name, shape in {**shapes, "bias_hh_l0": (4 * gates,)}.items()}


def attention(prefix=""):
    shapes = {"in_proj_weight": (18, 6), "in_proj_bias": (18,), "out_proj.weight": (6, 6), "out_proj.bias": (6,)}
    return {prefix + name: normal(*shape) for name, shape in shapes.items()}


ENCODER = {
    **attention("self_attn."),
    **{f"linear{i}.weight": normal(6, 6) for i in (1, 2)},
    **{f"linear{i}.bias": normal(6) for i in (1, 2)},
    **{f"norm{i}.{name}": normal(6) for i in (1, 2) for name in ("weight", "bias")},
}
NORM = {"weight": normal(4), "bias": normal(4)}
PICTURES, SERIES = normal(3, 4, 9, 8), normal(3, 4, 6)
CASES = {
    **{name: (SERIES, {}, {"weight": normal(1)} if name == "prelu" else {}) for name in ACTIVATIONS},
    "batch_norm": (PICTURES, {}, {**NORM, "running_mean": normal(4), "running_var": np.exp(normal(4))}),
    "conv1d": (SERIES, {"padding": 1}, {"weight": normal(2, 4, 3), "bias": normal(2)}),
    "conv2d": (PICTURES, {"stride": 2, "groups": 2}, {"weight": normal(2, 2, 3, 2), "bias": normal(2)}),
    "group_norm": (PICTURES, {"num_groups": 2}, NORM),
    "layer_norm": (SERIES, {"normalized_shape": (6,)}, {"weight": normal(6), "bias": normal(6)}),
    "max_pool1d": (SERIES, {"kernel_size": 2, "padding": 1}, {}),
    "max_pool2d": (PICTURES, {"kernel_size": 2, "stride": 1, "dilation": 2}, {}),
    "avg_pool1d": (SERIES, {"kernel_size": 2, "padding": 1, "count_include_pad": False}, {}),
    "avg_pool2d": (PICTURES, {"kernel_size": (3, 2), "padding": 1}, {}),
    "adaptive_avg_pool1d": (SERIES, {"output_size": 4}, {}),
    "adaptive_avg_pool2d": (PICTURES, {"output_size": (2, None)}, {}),
    "dropout": (SERIES, {}, {}),
    "embedding": (np.array([[0, 2], [1, 1]]), {}, {"weight": normal(3, 4)}),
    "flatten": (PICTURES, {"start_dim": 1}, {}),
    "linear": (SERIES, {}, {"weight": normal(2, 6), "bias": normal(2)}),
    "gru": (SERIES, RECURRENT, {"arrays": cells(3)}),
    "lstm": (SERIES, RECURRENT, {"arrays": cells(4)}),
    "multi_head_attention": (SERIES, {"num_heads": 2, "batch_first": True}, {"arrays": attention()}),
    "transformer_encoder_layer": (
        SERIES,
        {"num_heads": 2, "batch_first": True, "norm_first": False, "activation": 1, "eps": 1e-5},
        {"arrays": ENCODER},
    ),
}
POOLS = sorted(name for name in CASES if "_pool" in name)


def test_every_layer_has_a_case():
    assert {layer.function for layer in LAYERS.values()} <= set(CASES)


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float32") for name in sorted(CASES)), *((name, "bfloat16") for name in POOLS)]
)
def test_outputs_and_gradients_under_jit_are_those_without(name, dtype):
    x, settings, arrays = CASES[name]
    x, arrays = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, dtype if leaf.dtype == np.float32 else "int32"), (x, arrays)
    )

    def outputs(x, arrays):
        result = FUNCTIONS[name](*(x,) * (3 if name == "multi_head_attention" else 1), **settings, **arrays)
        return result[0] if isinstance(result, tuple) else result

    def total(x, arrays):
        return jnp.sum(jnp.sin(outputs(x, arrays)).astype("float32"))

    free = (0, 1) if jnp.issubdtype(x.dtype, jnp.floating) else (1,)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == "float32" else {"rtol": 0.02, "atol": 0.02}
    for function in (outputs, jax.grad(total, free)):
        got, wanted = jax.jit(function)(x, arrays), function(x, arrays)
        for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            assert one.dtype == other.dtype == dtype
            np.testing.assert_allclose(one.astype("float32"), other.astype("float32"), **tolerance)


@pytest.mark.parametrize("name", ["max_pool1d", "max_pool2d"])
def test_whole_numbers_are_pooled_as_they_are(name):
    x = jnp.arange(-24, 0).reshape((1, 1, 24) if name == "max_pool1d" else (1, 1, 4, 6))
    pooled = jax.jit(lambda x: FUNCTIONS[name](x, 2, padding=1))(x)
    assert pooled.dtype == x.dtype
    assert int(pooled.min()) == -24
