"""Pooling in PyTorch's names and with its options, in types that are not on file with PyTorch's answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tunbridge.model.networks.adapters.torch.graph import FUNCTIONS


def unlike(*shape):
    """Numbers that half precision holds exactly, no two of a window alike: a maximum has one place."""
    return (97 * np.arange(np.prod(shape)) % 251 - 125.0).reshape(shape) / 32.0


PICTURES, SERIES = unlike(3, 4, 9, 8), unlike(3, 4, 6)
POOLS = {
    "max_pool1d": (SERIES, {"kernel_size": 2, "padding": 1}),
    "max_pool2d": (PICTURES, {"kernel_size": 2, "stride": 1, "dilation": 2}),
    "avg_pool1d": (SERIES, {"kernel_size": 2, "padding": 1, "count_include_pad": False}),
    "avg_pool2d": (PICTURES, {"kernel_size": (3, 2), "padding": 1}),
    "adaptive_avg_pool1d": (SERIES, {"output_size": 4}),
    "adaptive_avg_pool2d": (PICTURES, {"output_size": (2, None)}),
}


@pytest.mark.parametrize("name", POOLS)
def test_half_precision_is_pooled_as_single_precision_to_its_rounding(name):
    x, settings = POOLS[name]

    @jax.jit
    def pooled(x):
        def total(x):
            outputs = FUNCTIONS[name](x, **settings)
            return jnp.sum(jnp.sin(outputs).astype("float32")), outputs

        return jax.grad(total, has_aux=True)(x)

    narrow, wide = (pooled(jnp.asarray(x, dtype)) for dtype in ("bfloat16", "float32"))
    for one, other in zip(narrow, wide, strict=True):
        assert one.dtype == "bfloat16"
        np.testing.assert_allclose(one.astype("float32"), other, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", ["max_pool1d", "max_pool2d"])
def test_whole_numbers_are_pooled_as_they_are(name):
    x = jnp.arange(-24, 0).reshape((1, 1, 24) if name == "max_pool1d" else (1, 1, 4, 6))
    pooled = jax.jit(lambda x: FUNCTIONS[name](x, 2, padding=1))(x)
    assert pooled.dtype == x.dtype
    assert int(pooled.min()) == -24
