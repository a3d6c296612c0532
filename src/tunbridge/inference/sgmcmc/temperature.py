"""The kinetic temperature of each array of unknowns: 1 if the sampler's own noise is the only source of heat.

It is measured by `heat`, a running mean of each unknown's kinetic energy in units of its equilibrium value.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.tree import flatten_with_paths, size, unravel
from tunbridge.inference.mixing import TEMPERATURE
from tunbridge.inference.sampler import shapes
from tunbridge.model.model import Model

_MEMORY = 0.99
"""Decay of the running mean of kinetic energies."""


def follow(heat: Array, energy: Array) -> Array:
    """Running mean after a step."""
    return heat + (1.0 - _MEMORY) * (energy - heat)


def of_arrays(model: Model, heat: Array) -> Array:
    """Kinetic temperature of each array of unknowns."""
    return jnp.stack([jnp.mean(group) for group in jax.tree.leaves(unravel(shapes(model), heat))])


def extremes(model: Model, heat: Array) -> dict[str, float]:
    """Temperatures of the coldest and the hottest array of unknowns; leading axes of `heat` run over chains."""
    ends = np.cumsum([size(leaf) for leaf in jax.tree.leaves(shapes(model))])
    means = [part.mean() for part in np.split(np.asarray(heat), ends[:-1], axis=-1)]
    return {"coldest": float(min(means)), "hottest": float(max(means))}


def stats(model: Model, temperatures: np.ndarray) -> dict[str, Array]:
    """Temperatures of kept states (chains, draws, arrays), keyed by the names that diagnostics use."""
    paths = [path for path, _ in flatten_with_paths(shapes(model))]
    return jax.device_put({f"{TEMPERATURE}{path}": temperatures[..., i] for i, path in enumerate(paths)})
