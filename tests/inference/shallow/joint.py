"""Geweke's joint test: parameters from the prior against those of a chain that alternates data and sampler."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import tunbridge as tb
from tunbridge.core.tree import unravel
from tunbridge.inference.sampler import shapes
from tunbridge.inference.shallow.form import Form
from tunbridge.inference.shallow.sweep import ShallowState

BATCHES = 50
FALSE_ALARM = 4.3
"""Standard errors: with 49 degrees of freedom |t| is above with probability 8e-5."""


def statistics(model, params, x):
    """Bounded functions of the unknowns: heavy-tailed ones have no central limit theorem."""
    unknowns = Form.of(model).unknowns(params)
    weights = model.weights(params)
    f = model.network.apply(weights, x)[:, 0]
    parts = {
        "sigma": jnp.tanh(jnp.log(unknowns.sigma)),
        "count": unknowns.number,
        "f": jnp.tanh(f),
        "f squared": jnp.tanh(f**2),
        "coefficients": jnp.mean(jnp.tanh(weights["output"]["weight"])),
        "bias times coefficient": jnp.tanh(jnp.sum(weights["hidden"]["bias"] * weights["output"]["weight"][:, 0])),
    }
    for name, value in unknowns.numbers.items():
        size = jnp.linalg.slogdet(value)[1] if jnp.ndim(value) == 2 else value
        parts[name] = jnp.tanh(
            jnp.log(size) if name.endswith(("variance", "precision")) and jnp.ndim(value) < 2 else size
        )
    return parts


def compare(model, x, key, num, jumps=None, integrated=True):
    """The largest difference in standard errors, by statistic, between the prior and the chain.

    Rows are padded, as in a fit, with rows of weight 0.
    """
    bound, data = model.bind(tb.Data(x, jnp.zeros(len(x))))
    data = data.padded()
    target, like = tb.Target(bound, float(data.num)), shapes(bound)
    key_prior, key_start, key_chain = jax.random.split(key, 3)
    prior = jax.jit(jax.vmap(lambda k: statistics(bound, bound.sample_params(k, data.x), data.x)))(
        jax.random.split(key_prior, num)
    )

    def iterate(state, key):
        key_data, key_step = jax.random.split(key)
        params = unravel(like, state.position)
        y = bound.likelihood.distribution(bound.outputs(params, data.x), params.noise).sample(key_data)
        batch = eqx.tree_at(lambda d: d.y, data, y)
        state, _ = state.next(key_step, target, batch, 0.3, jumps, integrated)
        return state, statistics(bound, unravel(like, state.position), data.x)

    start = ShallowState.begin(bound.sample_params(key_start, data.x), jnp.asarray(0))
    _, chain = jax.jit(lambda state, keys: jax.lax.scan(iterate, state, keys))(start, jax.random.split(key_chain, num))
    return {name: _worst(np.asarray(prior[name]), np.asarray(chain[name])) for name in prior}


def _worst(prior, chain):
    batches = chain.reshape(BATCHES, -1, *chain.shape[1:]).mean(axis=1)
    error = np.sqrt(batches.var(axis=0, ddof=1) / BATCHES + prior.var(axis=0) / len(prior))
    return float(np.max(np.abs(chain.mean(axis=0) - prior.mean(axis=0)) / np.maximum(error, 1e-9)))
