"""Simulation-based calibration: a method held against the model's own prior."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge import diagnostics
from tunbridge.bench.truth.temperature import refuse_tempered
from tunbridge.core.data import Data, check_x
from tunbridge.core.errors import ConvergenceWarning, InputError
from tunbridge.core.types import Key, Params
from tunbridge.diagnostics import Calibration
from tunbridge.inference.base import Method
from tunbridge.inference.chains import Chains
from tunbridge.inference.posteriors import Posterior
from tunbridge.model.model import Model, Target
from tunbridge.runtime.progress import Bar

_INPUTS = 3
"""At how many rows of x, evenly spaced, functions are ranked unless inputs are given."""
_LEAST = 20
_DRAWS = 200
"""Draws of a posterior that has no chains."""

Measure = Callable[[Params, Array], dict[str, Array]]


def sbc(
    method: Method,
    model: Model,
    x: Any,
    *,
    key: Key,
    simulations: int = 200,
    inputs: Any = None,
    progress: bool = True,
) -> Calibration:
    r"""Simulation-based calibration :cite:p:`talts2018validating`.

    Draw unknowns and data from the prior, :math:`\theta \sim p(\theta), y \sim p(y \mid x, \theta)`, and fit `method`
    to (x, y). If its draws are those of the posterior, :math:`\theta` is one more of them: the rank of any quantity
    :math:`q(\theta, y)` among its draws is uniform. Ranked are the network's outputs at `inputs`, unknown noise, the
    log likelihood of the data and the log prior. Each quantity's draws are thinned to its effective sample size (the
    lesser of bulk and tail); ties and places within a rank are drawn at random, so that ranks from 0 to 1 are exactly
    uniform for independent draws.

    Fits are of the same shapes, so that one compiled program serves them all.

    Parameters
    ----------
    method
        The method, at temperature 1. What it warns of is not shown.
    model
        Its network says how many outputs it has, and its likelihood how many classes.
    x
        Inputs of the data sets, (points, ...features). A few rows are best: what a method gets wrong about a prior
        shows where data says little.
    key
        Decides everything random.
    simulations
        How many data sets.
    inputs
        Where the network's outputs are ranked, (points, ...features); None takes three rows of x. Each is a quantity
        of its own, and so is each output.
    progress
        Show a bar.

    Returns
    -------
    `Calibration`, whose `passes` is wrong about right draws at most once in a hundred keys.
    """
    refuse_tempered(method)
    if simulations < _LEAST:
        raise InputError(f"at least {_LEAST} simulations", f"{simulations}", "Ranks of fewer say nothing: take 200.")
    x = jnp.asarray(check_x(x), float)
    where = x[np.linspace(0, len(x) - 1, min(len(x), _INPUTS)).round().astype(int)] if inputs is None else inputs
    model, _ = model.bind(Data(x, model.sample(key, x)[1]))
    measure, simulate = _measure(model, x, jnp.asarray(check_x(where), float)), jax.jit(model.sample)
    found = []
    with Bar("sbc", simulations, progress) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number, key_one in enumerate(jax.random.split(key, simulations)):
            key_data, key_fit, key_draws, key_place = jax.random.split(key_one, 4)
            truth, y = simulate(key_data, x)
            posterior = method.fit(model, Data(x, y), key=key_fit, progress=False)
            draws = measure(_draws(posterior, key_draws), y)
            true = measure(jax.tree.map(lambda leaf: leaf[None, None], truth), y)
            places = np.asarray(jax.random.uniform(key_place, (len(draws),)))
            found.append({name: _rank(draws[name], true[name], u) for name, u in zip(draws, places, strict=True)})
            bar.update(number + 1, {})
    ranks, used = ({name: np.array([one[name][i] for one in found]) for name in found[0]} for i in (0, 1))
    return Calibration(ranks, used)


def _measure(model: Model, x: Array, inputs: Array) -> Measure:
    """The quantities of unknowns with leading axes (chains, draws), given y."""
    target = Target(model, float(len(x)))

    def one(params: Params, y: Array) -> dict[str, Array]:
        outputs = model.outputs(params, inputs)
        found = {f"f({i})": outputs[i, 0] for i in range(len(inputs))}
        if outputs.shape[1] > 1:
            found = {f"f({i})[{j}]": outputs[i, j] for i, j in np.ndindex(*outputs.shape)}
        noise = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params.noise)] or [jnp.zeros(0)])
        found |= {f"noise({i})" if noise.size > 1 else "noise": noise[i] for i in range(noise.size)}
        log_likelihood, log_prior = jnp.sum(model.log_likelihood(params, x, y)), target.log_prior(params)
        return found | {"log likelihood": log_likelihood, "log prior": log_prior}

    return jax.jit(jax.vmap(jax.vmap(one, (0, None)), (0, None)))


def _draws(posterior: Posterior, key: Key) -> Params:
    """With leading axes (chains, draws)."""
    if isinstance(posterior, Chains):
        return posterior.params
    return jax.tree.map(lambda leaf: leaf[None], posterior.sample(key, _DRAWS))


def _rank(draws: Array, truth: Array, place: float) -> tuple[float, int]:
    """Where the truth lies among nearly independent draws, from 0 to 1, and how many these are."""
    values = np.asarray(draws, np.float64)
    ess = values.size
    if np.ptp(values) > 0:  # draws that swing to and fro know the middle well and the tails badly
        ess = np.nan_to_num(min(diagnostics.ess_bulk(values), diagnostics.ess_tail(values)), nan=1.0)
    num = int(np.clip(ess, 1, values.size))
    thinned = values.ravel()[np.linspace(0, values.size - 1, num).round().astype(int)]
    below, ties = np.sum(thinned < float(truth[0, 0])), np.sum(thinned == float(truth[0, 0]))
    return float((below + place * (1 + ties)) / (1 + num)), num
