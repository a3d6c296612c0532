"""Quasi-random points of normal distributions of a network's outputs."""

import functools

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import ndtri


def normal_points(mean: Array, covariance: Array, num: int) -> Array:
    """Return quasi-random points of normals, (num, points, outputs); for two classes they lie on a line."""
    width = mean.shape[-1]
    if width == 2:
        return _line(mean, covariance, num)
    normals = jnp.asarray(_mirrored(width, num), mean.dtype)
    jitter = 1e-6 * jnp.mean(jnp.diagonal(covariance, axis1=1, axis2=2), axis=-1) + 1e-12
    root = jnp.linalg.cholesky(covariance + jitter[:, None, None] * jnp.eye(width)[None])
    return mean[None] + jnp.einsum("nij,sj->sni", root, normals)


def _line(mean: Array, covariance: Array, num: int) -> Array:
    """The points for two logits, of which only the difference matters."""
    variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2.0 * covariance[:, 0, 1]
    normals = jnp.asarray(_mirrored(1, num)[:, 0], mean.dtype)
    differences = normals[:, None] * jnp.sqrt(jnp.maximum(variance, 0.0))[None]
    return mean[None] + jnp.stack([-0.5 * differences, 0.5 * differences], axis=-1)


@functools.cache
def _mirrored(width: int, num: int) -> np.ndarray:
    """Quasi-random standard normal points in mirrored pairs, scaled to variance 1, (num, width)."""
    from scipy.stats import qmc

    half = max(num // 2, 1)
    uniform = qmc.Sobol(width, rng=0).random(1 << (half - 1).bit_length())[:half]
    points = ndtri(np.clip(uniform, 1e-7, 1.0 - 1e-7))
    both = np.concatenate([points, -points])
    return both / np.sqrt(np.mean(both**2, axis=0))
