"""Small synthetic problems, drawn from a key, whose true functions are known."""

import jax
import jax.numpy as jnp

from tunbridge.core.data import Data
from tunbridge.core.declared import Count, checked
from tunbridge.core.types import Key


@checked
def curve(key: Key, num: Count = 60, noise: float = 0.1) -> Data:
    """Draw y = sin(3x) + x/2 + noise, with x uniform in [-2, -0.7] and [0.3, 2], so with a gap in between."""
    key_x, key_noise = jax.random.split(key)
    u = jax.random.uniform(key_x, (num,), maxval=3.0)
    x = jnp.where(u < 1.3, u - 2.0, u - 1.0)
    return Data(x[:, None], curve_mean(x) + float(noise) * jax.random.normal(key_noise, (num,)))


def curve_mean(x):
    """Return the true mean of `curve`, sin(3x) + x/2."""
    return jnp.sin(3 * x) + 0.5 * x


@checked
def funnel(key: Key, num: Count = 500) -> Data:
    """Draw y = sin(2x) + sigma(x) noise with sigma(x) = `funnel_scale`, x uniform in [-2, 2]."""
    key_x, key_noise = jax.random.split(key)
    x = jax.random.uniform(key_x, (num,), minval=-2.0, maxval=2.0)
    return Data(x[:, None], jnp.sin(2 * x) + funnel_scale(x) * jax.random.normal(key_noise, (num,)))


def funnel_scale(x):
    """Return the noise scale of `funnel`: from 0.05 on the left to 0.65 on the right."""
    return 0.05 + 0.15 * (x + 2.0)


@checked
def moons(key: Key, num: Count = 200, noise: float = 0.15) -> Data:
    """Draw two interleaved half circles with noise, labelled 0 and 1."""
    key_angle, key_label, key_noise = jax.random.split(key, 3)
    angle = jax.random.uniform(key_angle, (num,), maxval=jnp.pi)
    label = jax.random.bernoulli(key_label, 0.5, (num,)).astype(jnp.int32)
    upper = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    lower = jnp.stack([1.0 - jnp.cos(angle), 0.5 - jnp.sin(angle)], axis=1)
    x = jnp.where(label[:, None] == 0, upper, lower) + float(noise) * jax.random.normal(key_noise, (num, 2))
    return Data(x, label)
