"""Simulation-based calibration: checks a method on data simulated from the model's own prior."""

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
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import ConvergenceWarning, InputError
from tunbridge.core.types import Key, Params
from tunbridge.diagnostics import Calibration
from tunbridge.inference.base import Method
from tunbridge.inference.chains import Chains
from tunbridge.inference.posteriors import Posterior
from tunbridge.model.model import Model, Target
from tunbridge.runtime.progress import Bar

_INPUTS = 3
"""Number of evenly spaced rows of x at which functions are ranked if inputs are not given."""
_LEAST = 20
_DRAWS = 200
"""Number of draws from a posterior without chains."""

Measure = Callable[[Params, Array], dict[str, Array]]


@checked
def sbc(
    method: Method,
    model: Model,
    x: Any,
    *,
    key: Key,
    simulations: Count = 200,
    inputs: Any = None,
    progress: bool = True,
) -> Calibration:
    r"""Check a method by simulation-based calibration :cite:p:`talts2018validating`.

    Draw unknowns and data from the prior, :math:`\theta \sim p(\theta), y \sim p(y \mid x, \theta)`, and fit `method`
    to (x, y). If its draws follow the posterior, :math:`\theta` is, given y, distributed like one of them, so the
    rank of any quantity :math:`q(\theta, y)` among its draws is uniform. Ranked quantities are the network's outputs
    at `inputs`, unknown noise, the log likelihood of the data and the log prior. Each quantity's draws are thinned to
    its effective sample size (the smaller of bulk and tail); ties are broken at random and ranks are jittered, so that
    for independent draws they are exactly uniform on [0, 1].

    All fits have the same shapes, so the method is compiled once.

    Parameters
    ----------
    method
        The method, at temperature 1. Its convergence warnings are not shown.
    model
        The model. Its network must state the number of outputs, and its likelihood the number of classes.
    x
        Inputs of the data sets, (points, ...features). A few rows are best: errors in the treatment of the prior show
        where the data say little.
    key
        Decides everything random.
    simulations
        The number of data sets.
    inputs
        Inputs at which the network's outputs are ranked, (points, ...features); None takes three rows of x. Each input
        and output is a quantity of its own.
    progress
        Whether to show a progress bar.

    Returns
    -------
    `Calibration`; its `passes` rejects a correct method for at most one key in a hundred.
    """
    refuse_tempered(method)
    if simulations < _LEAST:
        raise InputError(f"at least {_LEAST} simulations", f"{simulations}", "Fewer ranks say nothing: use 200.")
    x = jnp.asarray(check_x(x), float)
    where = x[np.linspace(0, len(x) - 1, min(len(x), _INPUTS)).round().astype(int)] if inputs is None else inputs
    model, _ = model.bind(Data(x, model.sample(key, x)[1]))
    measure, simulate = _measure(model, x, jnp.asarray(check_x(where), float)), jax.jit(model.sample)
    results = []
    with Bar("sbc", simulations, progress) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number, key_one in enumerate(jax.random.split(key, simulations)):
            key_data, key_fit, key_draws, key_place = jax.random.split(key_one, 4)
            truth, y = simulate(key_data, x)
            posterior = method.fit(model, Data(x, y), key=key_fit, progress=False)
            draws = measure(_draws(posterior, key_draws), y)
            true = measure(jax.tree.map(lambda leaf: leaf[None, None], truth), y)
            places = np.asarray(jax.random.uniform(key_place, (len(draws),)))
            results.append({name: _rank(draws[name], true[name], u) for name, u in zip(draws, places, strict=True)})
            bar.update(number + 1, {})
    ranks, used = ({name: np.array([result[name][i] for result in results]) for name in results[0]} for i in (0, 1))
    return Calibration(ranks, used)


def _measure(model: Model, x: Array, inputs: Array) -> Measure:
    """Return a function that computes the ranked quantities of params with leading axes (chains, draws), given y."""
    target = Target(model, float(len(x)))

    def quantities_of_draw(params: Params, y: Array) -> dict[str, Array]:
        outputs = model.outputs(params, inputs)
        quantities = {f"f({i})": outputs[i, 0] for i in range(len(inputs))}
        if outputs.shape[1] > 1:
            quantities = {f"f({i})[{j}]": outputs[i, j] for i, j in np.ndindex(*outputs.shape)}
        noise = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params.noise)] or [jnp.zeros(0)])
        quantities |= {f"noise({i})" if noise.size > 1 else "noise": noise[i] for i in range(noise.size)}
        log_likelihood, log_prior = jnp.sum(model.log_likelihood(params, x, y)), target.log_prior(params)
        return quantities | {"log likelihood": log_likelihood, "log prior": log_prior}

    return jax.jit(jax.vmap(jax.vmap(quantities_of_draw, (0, None)), (0, None)))


def _draws(posterior: Posterior, key: Key) -> Params:
    """Posterior draws with leading axes (chains, draws)."""
    if isinstance(posterior, Chains):
        return posterior.params
    return jax.tree.map(lambda leaf: leaf[None], posterior.sample(key, _DRAWS))


def _rank(draws: Array, truth: Array, place: float) -> tuple[float, int]:
    """Rank of the truth among thinned draws, from 0 to 1, and the number of these draws."""
    values = np.asarray(draws, np.float64)
    ess = values.size
    if np.ptp(values) > 0:  # antithetic draws estimate the bulk well and the tails badly
        ess = np.nan_to_num(min(diagnostics.ess_bulk(values), diagnostics.ess_tail(values)), nan=1.0)
    num = int(np.clip(ess, 1, values.size))
    thinned = values.ravel()[np.linspace(0, values.size - 1, num).round().astype(int)]
    below, ties = np.sum(thinned < float(truth[0, 0])), np.sum(thinned == float(truth[0, 0]))
    return float((below + place * (1 + ties)) / (1 + num)), num
