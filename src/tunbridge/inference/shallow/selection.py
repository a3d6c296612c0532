r"""Which columns of a regression have a coefficient at all: a spike-and-slab prior, exactly or by Gibbs sampling.

.. math::

    y = \sum_j \delta_j c_j z_j + \sum_j (1 - \delta_j) c'_j z_j + \epsilon, \quad
    c_j \sim N(0, s_1^2), \; c'_j \sim N(0, s_0^2), \; \Pr(\delta_j = 1) = p, \; \epsilon \sim N(0, \sigma^2)

with :math:`s_0 = 0` for a spike at zero :cite:p:`george1993variable`. The coefficients are integrated out, so that
each of the :math:`2^M` models has a probability in closed form. The columns may be inputs, or features of a network's
last layer.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core import tables
from tunbridge.core.declared import Count, Positive, as_floats, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Scalar
from tunbridge.inference.shallow.form import in_single
from tunbridge.inference.shallow.marginal import Column, Regression

MOST = 20
"""The largest number of columns whose models are enumerated."""
_WIDEST = 1e10
"""The widest prior variance, relative to that of an estimate, at which rank-one updates are accurate."""


@dataclasses.dataclass(frozen=True)
class Selection(tables.Table):
    """The probability of each column to have a coefficient, and of models.

    Parameters
    ----------
    models
        Indicators of the columns, (models, columns): all models, or draws of them.
    probabilities
        The posterior probability of each model, (models,); those of draws are equal.
    """

    caption = "columns with a coefficient"
    sentences = ()

    models: np.ndarray
    probabilities: np.ndarray

    @property
    def inclusion(self) -> np.ndarray:
        """Posterior probability of each column to have a coefficient, (columns,)."""
        return self.probabilities @ self.models

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per column."""
        return [{"column": index, "probability": float(value)} for index, value in enumerate(self.inclusion)]


@checked
def enumerated(
    columns: Any, y: Any, *, sigma: Positive, slab: Positive = 1.0, spike: float = 0.0, probability: float = 0.5
) -> Selection:
    """The posterior probability of every model, :math:`2^M` of them.

    Parameters
    ----------
    columns, y
        The columns (points, columns), at most 20 of them, and the targets (points,).
    sigma
        Standard deviation of the noise.
    slab, spike
        Standard deviations of coefficients that are in the model, and of those that are not.
    probability
        Prior probability of each column to be in the model.
    """
    z, target = _checked(columns, y, slab, spike, probability)
    size = z.shape[1]
    if size > MOST:
        raise InputError(f"at most {MOST} columns", f"{size}, with {2.0**size:.0e} models", "Use sampled().")
    models: np.ndarray = (np.arange(2**size)[:, None] >> np.arange(size)) & 1 == 1
    prior = np.sum(np.log(np.where(models, probability, 1.0 - probability)), axis=1)
    logs = prior + _log_marginals(z / sigma, target / sigma, np.where(models, slab, spike))
    weights = np.exp(logs - logs.max())
    return Selection(models, weights / weights.sum())


@checked
def sampled(
    columns: Any,
    y: Any,
    *,
    sigma: Positive,
    slab: Positive = 1.0,
    spike: float = 0.0,
    probability: float = 0.5,
    key: Key,
    num: Count = 5000,
    warmup: Count = 500,
) -> Selection:
    """Draws of models by Gibbs sampling: each indicator in turn, with all coefficients integrated out.

    A sweep over M columns costs M rank-one updates of an M by M matrix, whatever the number of rows.

    Parameters
    ----------
    columns, y, sigma, slab, spike, probability
        As for `enumerated`, any number of columns.
    key
        The key.
    num, warmup
        Number of sweeps that are kept, and before.
    """
    z, target = _checked(columns, y, slab, spike, probability)
    z, target = z / sigma, target / sigma
    _log_marginals(z, target, np.full((1, z.shape[1]), slab))
    gram, log_odds = z.T @ z, np.log(probability) - np.log1p(-probability)
    if (ratio := slab**2 * np.linalg.eigvalsh(gram)[-1]) > _WIDEST:
        raise InputError(
            f"coefficients whose prior variance is at most {_WIDEST:.0e} times that of their estimate",
            f"{ratio:.0e}",
            "Use a smaller slab, or centre and scale the columns: rounding would decide.",
        )
    with jax.enable_x64(True):
        drawn = _swept(warmup + num, key, gram, z.T @ target, np.array([spike, slab]), np.asarray(log_odds))
    return Selection(np.asarray(drawn)[warmup:], np.full(num, 1.0 / num))


def _log_marginals(z: np.ndarray, y: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Log densities of y, up to a constant, of models with these prior standard deviations; InputError for NaN."""
    with jax.enable_x64(True):
        logs = np.asarray(_each(jnp.asarray(z.T @ z), jnp.asarray(z.T @ y), jnp.asarray(scales)))
    if not np.isfinite(logs).all():
        raise InputError("columns and scales with finite densities of y", "others", "Scale the columns and the slab.")
    return logs


@jax.jit
def _each(gram: Array, products: Array, scales: Array) -> Array:
    def log_marginal(s: Array) -> Scalar:
        root = jnp.linalg.cholesky(jnp.eye(s.size) + s[:, None] * gram * s[None])
        half = jax.scipy.linalg.solve_triangular(root, s * products, lower=True)
        return 0.5 * half @ half - jnp.sum(jnp.log(jnp.diagonal(root)))

    return jax.lax.map(log_marginal, scales, batch_size=1024)


@partial(jax.jit, static_argnums=0)
def _swept(sweeps: int, key: Key, gram: Array, targets: Array, scales: Array, log_odds: Array) -> Array:
    """Indicators after every sweep from the full model, (sweeps, columns), in double precision."""
    size = targets.size

    def column(chosen: Array, index: Array, scale: Scalar) -> Column:
        cross = scale * gram[index] * scales[chosen.astype(np.int32)]
        return Column(cross.at[index].set(0.0), scale**2 * gram[index, index], scale * targets[index])

    def draw(index: Array, carry: tuple) -> tuple:
        regression, chosen, uniform = carry
        rest = regression.without(index)
        out, inside = (column(chosen, index, scale) for scale in scales)
        log_ratio = log_odds + rest.gain(index, inside) - rest.gain(index, out)
        include = uniform[index] < jax.nn.sigmoid(log_ratio)
        new = jax.tree.map(lambda a, b: jnp.where(include, a, b), inside, out)
        return rest.with_column(index, new), chosen.at[index].set(include), uniform

    def sweep(chosen: Array, key: Key) -> tuple[Array, Array]:
        scale = scales[chosen.astype(np.int32)]
        start = Regression.of(scale[:, None] * gram * scale[None], scale * targets, jnp.zeros_like(scale))
        uniform = in_single(jax.random.uniform, key, (size,))
        _, chosen, _ = jax.lax.fori_loop(np.int32(0), np.int32(size), draw, (start, chosen, uniform))
        return chosen, chosen

    _, drawn = jax.lax.scan(sweep, jnp.ones(size, bool), in_single(jax.random.split, key, sweeps))
    return drawn


def _checked(columns: Any, y: Any, slab: float, spike: float, probability: float) -> tuple[np.ndarray, np.ndarray]:
    z, target = as_floats(columns, "columns"), as_floats(y, "y")
    if z.ndim != 2 or target.shape != z.shape[:1] or not z.size:
        raise InputError("columns (points, columns) and y (points,)", f"{z.shape} and {target.shape}", "Reshape them.")
    if not (np.isfinite(z).all() and np.isfinite(target).all()):
        raise InputError("finite columns and y", "NaN or infinity", "Remove such rows.")
    if not 0.0 <= spike < slab:
        raise InputError("a spike from 0 to below the slab", f"{spike}, slab {slab}", "Change spike=.")
    if not 0.0 < probability < 1.0:
        raise InputError("a probability between 0 and 1", f"{probability}", "Change probability=.")
    return z, target
