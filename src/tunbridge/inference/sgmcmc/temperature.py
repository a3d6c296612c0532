"""Samplers that measure the kinetic temperature of each array of unknowns: 1 where their own noise alone heats."""

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.data import Data
from tunbridge.core.tree import flatten_with_paths, size, unravel
from tunbridge.core.types import Key, PyTree
from tunbridge.inference.chains import Chains
from tunbridge.inference.mixing import TEMPERATURE
from tunbridge.inference.recorded import Recorded
from tunbridge.inference.sampler import Sampler, shapes
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Trace


class Thermometer(Sampler):
    """A sampler whose state has `heat`: a running mean of each unknown's kinetic energy, 1 in equilibrium."""

    @abc.abstractmethod
    def are_draws(self, steps: np.ndarray) -> np.ndarray:
        """Whether states after these steps, counted from the end of warm-up, are draws."""

    def keep(self, target: Target, state: Any) -> PyTree:
        """The position or the outputs, and the temperature of each array of unknowns."""
        groups = jax.tree.leaves(unravel(shapes(target.model), state.heat))
        return super().keep(target, state), jnp.stack([jnp.mean(group) for group in groups])

    def facts(self, target: Target, state: Any) -> dict[str, float]:
        """The coldest and the hottest array of unknowns, for the progress bar."""
        ends = np.cumsum([size(leaf) for leaf in jax.tree.leaves(shapes(target.model))])
        means = [part.mean() for part in np.split(np.asarray(state.heat), ends[:-1], axis=-1)]
        return {"coldest": float(min(means)), "hottest": float(max(means))}

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Chains | Recorded:
        """The draws of all chains, with the temperatures at each."""
        num = min(len(trace.kept[1]) for trace in traces)
        chosen = np.flatnonzero(self.are_draws((1 + np.arange(num)) * self.run.thin - 1))
        some = [jax.tree.map(lambda leaf: leaf[chosen], (trace.kept, trace.info)) for trace in traces]
        kept = [trace._replace(kept=part[0], info=info) for trace, (part, info) in zip(traces, some, strict=True)]
        found = super().posterior(model, data, kept, key)
        heat = np.stack([np.asarray(part[1]) for part, _ in some])
        paths = [path for path, _ in flatten_with_paths(shapes(model))]
        warmth = {f"{TEMPERATURE}{path}": heat[..., i] for i, path in enumerate(paths)}
        return dataclasses.replace(found, stats={**found.stats, **jax.device_put(warmth)})
