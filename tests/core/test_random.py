"""Fast normal numbers: their law, their independence, and that they do not depend on how they are asked for."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from tunbridge.core.random import normal

SINGLE = jnp.dtype("float32")


def test_numbers_are_normal_and_independent():
    """A million numbers: moments and neighbours within 5 standard errors, Kolmogorov's p above 1e-4."""
    z = np.asarray(normal(jax.random.key(3), (1_000_000,), SINGLE), np.float64)
    moments = [z.mean(), (z**2).mean() - 1, (z**3).mean(), (z**4).mean() - 3]
    assert (np.abs(moments) < 5 * np.sqrt(np.array([1, 2, 15, 96]) / z.size)).all()
    assert stats.kstest(z, "norm").pvalue > 1e-4
    for lag in (1, 2, 256, 784):
        assert abs(np.mean(z[:-lag] * z[lag:])) < 5e-3
    assert 4.5 < np.abs(z).max() < 5.6


def test_numbers_of_different_keys_are_independent():
    keys = jax.random.split(jax.random.key(0), 500)
    z = np.asarray(jax.vmap(lambda key: normal(key, (500,), SINGLE))(keys), np.float64)
    for table in (z, z.T):
        off = np.corrcoef(table) - np.eye(500)
        assert np.abs(off).max() < 6 / 500**0.5
    np.testing.assert_array_equal(z[7], np.asarray(normal(keys[7], (500,), SINGLE)))


def test_double_precision_is_jaxs(x64):
    key = jax.random.key(0)
    np.testing.assert_array_equal(normal(key, (5,), jnp.dtype("float64")), jax.random.normal(key, (5,)))
