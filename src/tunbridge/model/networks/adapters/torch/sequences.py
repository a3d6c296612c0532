"""PyTorch's recurrent layers and attention in JAX. `arrays` holds a layer's parameters by PyTorch's names."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.model.networks.adapters.torch.functions import ACTIVATIONS, aligned, linear
from tunbridge.model.networks.adapters.torch.windows import layer_norm

Arrays = dict[str, Array]


def _lstm_cell(arrays: Arrays, end: str, drive: Array, state: tuple) -> tuple:
    h, c = state
    i, f, g, o = jnp.split(drive + linear(h, arrays[f"weight_hh_{end}"], arrays.get(f"bias_hh_{end}")), 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gru_cell(arrays: Arrays, end: str, drive: Array, state: tuple) -> tuple:
    (h,) = state
    recurrent = linear(h, arrays[f"weight_hh_{end}"], arrays.get(f"bias_hh_{end}"))
    (r, z, n), (r_h, z_h, n_h) = jnp.split(drive, 3, axis=-1), jnp.split(recurrent, 3, axis=-1)
    z = jax.nn.sigmoid(z + z_h)
    n = jnp.tanh(n + jax.nn.sigmoid(r + r_h) * n_h)
    return ((1 - z) * n + z * h,)


def _recurrent(cell: Callable, num_states: int) -> Callable:
    """``LSTM`` or ``GRU``: outputs, and the last state of each layer and direction."""

    def run(
        x: Array,
        state: Any = None,
        *,
        arrays: Arrays,
        hidden_size: int,
        num_layers: int,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple:
        z = jnp.swapaxes(x, 0, 1) if batch_first else x
        ends = ("", "_reverse") if bidirectional else ("",)
        given = (state if num_states > 1 else (state,)) if state is not None else None
        zero = jnp.zeros((z.shape[1], hidden_size), z.dtype)
        last = []
        for layer in range(num_layers):
            parts = []
            for direction, suffix in enumerate(ends):
                row = layer * len(ends) + direction
                first = (zero,) * num_states if given is None else tuple(part[row] for part in given)
                final, outputs = _scan(cell, arrays, f"l{layer}{suffix}", z, first, reverse=bool(suffix))
                parts.append(outputs)
                last.append(final)
            z = jnp.concatenate(parts, axis=-1)
        states = tuple(jnp.stack(part) for part in zip(*last, strict=True))
        return (jnp.swapaxes(z, 0, 1) if batch_first else z), states if num_states > 1 else states[0]

    return run


def _scan(cell: Callable, arrays: Arrays, end: str, z: Array, first: tuple, *, reverse: bool) -> tuple:
    """One layer in one direction over z (times, points, features)."""
    drive = linear(z, arrays[f"weight_ih_{end}"], arrays.get(f"bias_ih_{end}"))
    first = tuple(part.astype(drive.dtype) for part in first)

    def step(state: tuple, now: Array) -> tuple:
        state = cell(arrays, end, now, state)
        return state, state[0]

    return jax.lax.scan(step, first, drive, reverse=reverse)


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Array:
    """Values averaged by the softmax of scaled products. A mask is true where attention is allowed, or is added."""
    return _attend([query, key, value], _logits(attn_mask), is_causal, scale)[0]


def _logits(mask: Array | None, allowed: bool = True) -> Any:
    """A mask to add to the scores; a boolean one is true where it allows attention, or forbids it if not `allowed`."""
    if mask is None or mask.dtype != bool:
        return mask
    return jnp.where(mask if allowed else ~mask, 0.0, -jnp.inf)


def _attend(heads: list[Array], mask: Any, causal: bool, scale: float | None) -> tuple[Array, Array]:
    query, key, value = heads
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = jnp.matmul(query * scale, jnp.swapaxes(key, -1, -2))
    if causal:
        mask = _logits(jnp.tri(scores.shape[-2], scores.shape[-1], dtype=bool))
    if mask is not None:
        scores = sum(aligned(scores, mask))
    weights = jax.nn.softmax(scores, axis=-1)
    return jnp.matmul(weights, value), weights


def multi_head_attention(
    query: Array,
    key: Array,
    value: Array,
    key_padding_mask: Array | None = None,
    need_weights: bool = True,
    attn_mask: Array | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    arrays: Arrays,
    num_heads: int,
    batch_first: bool,
) -> tuple[Array, Array | None]:
    """``MultiheadAttention``: outputs, and the weights if they are needed. Masks are true to forbid."""
    if not batch_first:
        query, key, value = (jnp.swapaxes(part, 0, 1) for part in (query, key, value))
    heads = [
        jnp.swapaxes(jnp.reshape(part, (*part.shape[:2], num_heads, -1)), 1, 2)
        for part in _projected(arrays, query, key, value)
    ]
    mask = _logits(attn_mask, allowed=False)
    if mask is not None and mask.ndim == 3:
        mask = jnp.reshape(mask, (-1, num_heads, *mask.shape[1:]))
    if key_padding_mask is not None:
        padding = _logits(key_padding_mask, allowed=False)[:, None, None, :]
        mask = padding if mask is None else sum(aligned(mask, padding))
    z, weights = _attend(heads, mask, False, None)
    z = jnp.reshape(jnp.swapaxes(z, 1, 2), (*query.shape[:2], -1))
    z = linear(z, arrays["out_proj.weight"], arrays.get("out_proj.bias"))
    if need_weights and average_attn_weights:
        weights = jnp.mean(weights, axis=1)
    return (z if batch_first else jnp.swapaxes(z, 0, 1)), weights if need_weights else None


def _projected(arrays: Arrays, *parts: Array) -> list[Array]:
    """Projections of query, key and value, by one stacked weight or by three."""
    biases = jnp.split(arrays["in_proj_bias"], 3) if "in_proj_bias" in arrays else (None,) * 3
    if "in_proj_weight" in arrays:
        kernels = jnp.split(arrays["in_proj_weight"], 3)
    else:
        kernels = [arrays[f"{name}_proj_weight"] for name in "qkv"]
    return [linear(*row) for row in zip(parts, kernels, biases, strict=True)]


def transformer_encoder_layer(
    x: Array,
    src_mask: Array | None = None,
    src_key_padding_mask: Array | None = None,
    is_causal: bool = False,
    *,
    arrays: Arrays,
    num_heads: int,
    batch_first: bool,
    norm_first: bool,
    activation: int,
    eps: float,
) -> Array:
    """Attention and a feed-forward block, each with a residual, the norm before or after. Activation 1 is relu."""
    inner = {name.removeprefix("self_attn."): array for name, array in arrays.items() if name.startswith("self_attn.")}

    def norm(number: int, z: Array) -> Array:
        weight, bias = (arrays.get(f"norm{number}.{name}") for name in ("weight", "bias"))
        return layer_norm(z, (z.shape[-1],), weight, bias, eps)

    def attend(z: Array) -> Array:
        return multi_head_attention(
            z, z, z, src_key_padding_mask, False, src_mask, arrays=inner, num_heads=num_heads, batch_first=batch_first
        )[0]

    def feed(z: Array) -> Array:
        z = linear(z, arrays["linear1.weight"], arrays.get("linear1.bias"))
        z = ACTIVATIONS["relu" if activation == 1 else "gelu"](z)
        return linear(z, arrays["linear2.weight"], arrays.get("linear2.bias"))

    if norm_first:
        x = x + attend(norm(1, x))
        return x + feed(norm(2, x))
    x = norm(1, x + attend(x))
    return norm(2, x + feed(x))


FUNCTIONS: dict[str, Callable] = {
    "gru": _recurrent(_gru_cell, 1),
    "lstm": _recurrent(_lstm_cell, 2),
    "multi_head_attention": multi_head_attention,
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "transformer_encoder_layer": transformer_encoder_layer,
}
