"""Forecasts of autoregressions, more than one step ahead."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.compiling import once
from tunbridge.core.declared import Count, as_floats, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.standardised import Standardised, inner
from tunbridge.model.model import Model


@checked
def simulate(posterior: Posterior, recent: Any, steps: Count, *, key: Key, num: Count = 1000) -> np.ndarray:
    """Paths (num, steps) of an autoregression from its `recent` values on, each with a network of its own.

    A path draws one network and one noise scale from the posterior, and noise at every step; what it draws is its next
    input. Paths therefore carry all uncertainty forward, which iterating the predictive mean would not.

    Parameters
    ----------
    posterior
        A posterior fitted to rows of `datasets.lagged`, also `Standardised`.
    recent
        At least as many values as there are lags, in the order of time.
    steps
        Number of values to simulate.
    key
        The key.
    num
        Number of paths.
    """
    scaled = inner(posterior)
    model, values = scaled.model, as_floats(recent, "recent")
    lags = model.example().shape[1]
    if values.ndim != 1 or len(values) < lags:
        raise InputError(f"the {lags} most recent values or more", f"shape {values.shape}", "Give more of the series.")
    if not np.isfinite(values).all():
        raise InputError(
            "finite values", f"{values[~np.isfinite(values)][0]} in recent", "Fill the gaps of the series."
        )
    drawn = jax.eval_shape(partial(_next, model), scaled.draw_like(), model.example(), key)
    if drawn.shape != (1, 1):
        raise InputError("a posterior of one number per row", f"y of shape {drawn.shape}", "Fit datasets.lagged(y, 2).")
    start, y_shift, y_scale = values[::-1][:lags], np.zeros(1), np.ones(1)
    x_shift, x_scale = np.zeros(lags), np.ones(lags)
    if isinstance(posterior, Standardised):
        scaling = posterior.scaling
        x_shift, x_scale = scaling.x_shift, scaling.x_scale
        if scaling.y_shift is not None and scaling.y_scale is not None:
            y_shift, y_scale = scaling.y_shift, scaling.y_scale
    # in units of the standardised y, so that values near a large mean keep their digits
    between = ((y_shift[0] - x_shift) / x_scale, y_scale[0] / x_scale)
    key_draws, key_paths = jax.random.split(key)
    params = scaled.sample(key_draws, num)
    keys = jax.random.split(key_paths, steps)
    paths = _paths(model, params, jnp.asarray((start - y_shift[0]) / y_scale[0]), between, keys)
    return np.asarray(paths, np.float64) * y_scale[0] + y_shift[0]


def _next(model: Model, params: Params, x: Array, key: Key) -> Array:
    """A draw of y at x."""
    return model.likelihood.distribution(model.outputs(params, x), params.noise).sample(key)


@once
def _paths(model: Model, params: Params, start: Array, between: tuple[Array, Array], keys: Array) -> Array:
    """Paths in units of y; `between` are the shift and the scale from these to inputs."""
    shift, scale = (jnp.asarray(part, start.dtype) for part in between)

    def step(before: Array, key: Key) -> tuple[Array, Array]:
        def value(params: Params, before: Array, key: Key) -> Array:
            return _next(model, params, (shift + scale * before)[None], key).reshape(())

        drawn = jax.vmap(value)(params, before, jax.random.split(key, before.shape[0]))
        return jnp.concatenate([drawn[:, None], before[:, :-1]], axis=1), drawn

    num = jax.tree.leaves(params)[0].shape[0]
    _, drawn = jax.lax.scan(step, jnp.broadcast_to(start, (num, *start.shape)), keys)
    return drawn.T
