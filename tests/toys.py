"""A tiny sampler and small problems, to test the loop with."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.core.errors import Result
from tunbridge.inference.base import Iterative, Method


class WalkState(NamedTuple):
    params: Any
    density: Any
    steps: Any


class WalkInfo(NamedTuple):
    result: Any
    accepted: Any


class Walk(Iterative):
    """Random-walk Metropolis: the smallest method that keeps draws."""

    step_size: float = eqx.field(default=0.1, converter=float)
    run: tb.Run = tb.Run(chains=2, warmup=20, draws=50)
    fail_at: int = -1
    stop_at: int = 10**9

    @property
    def duration(self):
        return self.run

    @property
    def gradients_per_step(self):
        return 1

    def init(self, key, target, params, batch, warmup):
        return WalkState(params, target.log_density(params, batch), jnp.zeros((), jnp.int32))

    def step(self, key, target, state, batch):
        key_move, key_accept = jax.random.split(key)
        flat, unravel = jax.flatten_util.ravel_pytree(state.params)
        moved = unravel(flat + self.step_size * jax.random.normal(key_move, flat.shape, flat.dtype))
        density = target.log_density(moved, batch)
        accepted = jnp.log(jax.random.uniform(key_accept)) < density - state.density
        new = WalkState(moved, density, state.steps)
        state = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, state)
        state = state._replace(steps=state.steps + 1)
        bad = state.steps - 1 == self.fail_at
        result = jnp.where(bad, Result.NONFINITE_STATE, Result.SUCCESSFUL).astype(jnp.int32)
        return state, WalkInfo(result, accepted)

    def done(self, state):
        return state.steps >= self.stop_at

    def keep(self, target, state):
        return state.params, state.steps

    def posterior(self, model, data, traces, key):
        params = [trace.kept[0] for trace in traces]
        return tb.Draws(model, key, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *params))


class LeastSquares(Method):
    """Linear networks by least squares, on y or on logits of -3 and 3: quick enough to try doors with."""

    def posteriors(self, model, data, key, size, options):
        model, rows = model.bind(data)
        x, y = np.column_stack([rows.x, np.ones(rows.num)]), np.asarray(rows.y)
        if y.ndim == 1:
            num = model.likelihood.num_outputs(y)
            y = 6.0 * (y[:, None] == (np.arange(num)[None] if num > 1 else 1)) - 3.0
        weighted = x.T * (np.ones(rows.num) if rows.weight is None else np.asarray(rows.weight, float))
        weights = jnp.asarray(np.linalg.solve(weighted @ x + 1e-3 * np.eye(x.shape[1]), weighted @ y))
        params = tb.Params({"layers": [{"weight": weights[:-1], "bias": weights[-1]}]})
        return [tb.Point(model, key, params)] * size


def table(num=40, features=3, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num, features))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] + noise * rng.normal(size=num)
    return tb.Data(x, y)


def labelled(num=60, features=3, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num, features))
    return tb.Data(x, np.argmax(x @ rng.normal(size=(features, classes)), axis=1))


def model(hidden=(5,), likelihood=None, prior=None):
    return tb.Model(tb.networks.MLP(hidden), prior or tb.priors.Normal(1.0), likelihood or tb.likelihoods.Gaussian(0.1))


def equal(a, b):
    """Whether two pytrees are equal to the bit."""
    leaves_a, leaves_b = jax.tree.leaves(a), jax.tree.leaves(b)
    return len(leaves_a) == len(leaves_b) and all(
        np.array_equal(_numbers(x), _numbers(y)) for x, y in zip(leaves_a, leaves_b, strict=True)
    )


def _numbers(leaf):
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def quick(names, chosen):
    """Parameters of a test: all names, those that are not chosen for the slow tests only."""
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.slow) for name in names]
