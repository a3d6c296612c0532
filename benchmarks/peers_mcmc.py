"""The same problem for numpyro and blackjax, called as their documentation says."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro.infer import HMC, NUTS


def numpyro_model(scales):
    """13-50-1 tanh with independent normal weights of given scales, noise ~ Gamma(1/2, 1)."""

    def model(x, y=None):
        hidden = 50
        shapes = ((x.shape[1], hidden), (hidden,), (hidden, 1), (1,))
        w1, b1, w2, b2 = (
            numpyro.sample(f"p{i}", dist.Normal(0.0, scale).expand(shape).to_event(len(shape)))
            for i, (shape, scale) in enumerate(zip(shapes, scales, strict=True))
        )
        noise = numpyro.sample("noise", dist.Gamma(0.5, 1.0))
        mean = (jnp.tanh(x @ w1 + b1) @ w2 + b2)[:, 0]
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(mean, noise), obs=y)

    return model


def blackjax_chains(log_density, starts, warmup, draws, keys):
    """Window adaptation and NUTS, vmapped over chains as in blackjax's documentation of multiple chains."""

    def one(key, start):
        key_warm, key_draw = jax.random.split(key)
        warm = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, parameters), _ = warm.run(key_warm, start, num_steps=warmup)
        step = blackjax.nuts(log_density, **parameters).step

        def turn(state, key):
            state, _ = step(key, state)
            return state, state.position

        return jax.lax.scan(turn, state, jax.random.split(key_draw, draws))[1]

    return jax.jit(jax.vmap(one))(keys, starts)


def flat_log_density(target, data):
    """The log density of a flat vector, and the function that unravels it."""
    like = jax.eval_shape(lambda x: target.model.sample_params(jax.random.key(0), x), data.x)
    _, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like))
    return lambda position: target.log_density(unravel(position), data), unravel


def as_numpyro(starts):
    """Tunbridge's parameters as numpyro's unconstrained ones."""
    first, second = starts.weights["layers"]
    return {
        "p0": first["weight"],
        "p1": first["bias"],
        "p2": second["weight"],
        "p3": second["bias"],
        "noise": starts.noise[0],
    }


def numpyro_functions(samples, x):
    """Outputs of the network, (chains, draws, points)."""
    hidden = jnp.tanh(jnp.einsum("nf,cdfh->cdnh", x, samples["p0"]) + samples["p1"][:, :, None])
    return np.asarray(jnp.einsum("cdnh,cdho->cdn", hidden, samples["p2"]) + samples["p3"])


__all__ = ["HMC", "NUTS"]
