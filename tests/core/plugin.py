"""A package of one file, as a stranger would write it, with a part of each kind (see test_names.py)."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import tunbridge as tb
from tunbridge.core.errors import Result
from tunbridge.inference.base import Iterative
from tunbridge.model.likelihoods.base import OneScale, by_output, diagonal
from tunbridge.model.priors.base import Independent


class Info(NamedTuple):
    result: Any
    accepted: Any


class Walk(tb.Draws):
    """Draws of a walk."""


class Stroll(Iterative):
    """Metropolis with one step size."""

    step_size: float = 0.1
    run: tb.Run = tb.Run(chains=2, warmup=20, draws=50)

    @property
    def duration(self):
        return self.run

    @property
    def gradients_per_step(self):
        return 1

    def init(self, key, target, params, batch, warmup):
        return params, target.log_density(params, batch)

    def step(self, key, target, state, batch):
        key_move, key_accept = jax.random.split(key)
        flat, unravel = jax.flatten_util.ravel_pytree(state[0])
        moved = unravel(flat + self.step_size * jax.random.normal(key_move, flat.shape, flat.dtype))
        density = target.log_density(moved, batch)
        accepted = jnp.log(jax.random.uniform(key_accept)) < density - state[1]
        state = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), (moved, density), state)
        return state, Info(jnp.int32(Result.SUCCESSFUL), accepted)

    def keep(self, target, state):
        return state[0]

    def posterior(self, model, data, traces, key):
        return Walk(model, key, jax.tree.map(lambda *kept: jnp.concatenate(kept), *(one.kept for one in traces)))


class Secant(Independent):
    """The logarithm of a half-Cauchy variable."""

    scale: Any = 1.0

    def law(self):
        return dist.TransformedDistribution(dist.HalfCauchy(1.0), dist.transforms.ExpTransform().inv)


class Logistic(OneScale):
    """Logistic noise."""

    scale: Any = 1.0

    def distribution(self, outputs, noise=()):
        return dist.Logistic(outputs, by_output(self.values(noise), outputs)).to_event(1)

    def fisher_root(self, outputs, noise=()):
        return diagonal(1 / (math.sqrt(3) * by_output(self.values(noise), outputs)))


class Waves(eqx.Module):
    """Sines of one linear layer, summed."""

    num: int = eqx.field(default=5, static=True)
    outputs: int | None = eqx.field(default=None, static=True)

    def with_outputs(self, num):
        return Waves(self.num, num)

    def init(self, key, x):
        first, last = jax.random.split(key)
        ways = jax.random.normal(last, (self.num, self.outputs)) / math.sqrt(self.num)
        return {"first": jax.random.normal(first, (x.shape[1], self.num)), "last": ways}

    def apply(self, weights, x, *, key=None):
        return jnp.sin(x @ weights["first"]) @ weights["last"]

    def layout(self, weights):
        return dict.fromkeys(weights, tb.networks.Leaf("weight", inputs=(0,), outputs=(1,)))
