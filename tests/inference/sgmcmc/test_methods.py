"""SGLD, SGHMC, SGNHT as their users meet them: SGD without noise, resumed, interrupted, refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import tunbridge as tb
from toys import equal, table
from tunbridge.inference.sampler import shapes
from tunbridge.core.tree import ravel, strong, unravel
from tunbridge.runtime.batches import Minibatches
from tunbridge.runtime.chunk import member_keys

MODEL = tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3))
DATA = table(24)
RUN = tb.Run(chains=1, warmup=0, draws=10, thin=3, batch_size=8)


@jax.jit
def by_optax(target, data, key, step_size, momentum, steps):
    """The position after some steps of SGD on the batches that a sampler's first chain sees."""
    source, like = Minibatches(data, 8), shapes(target.model)
    optimiser = optax.sgd(step_size, momentum=momentum)
    key_start, _, key_batches, _ = member_keys(jax.random.split(jax.random.split(key)[0], 1)[0])

    def step(t, carry):
        position, memory, cursor = carry
        cursor, batch = source.next(key_batches, cursor, t)
        slope = jax.grad(target.log_density)(unravel(like, position), batch)
        updates, memory = optimiser.update(-ravel(slope), memory)
        return optax.apply_updates(position, updates), memory, cursor

    cursor = source.start(key_batches, jnp.zeros((), jnp.int32))
    _, batch = source.next(key_batches, cursor, jnp.zeros((), jnp.int32))
    first = ravel(tb.SGLD(1e-3).start(key_start, target, batch))
    return jax.lax.fori_loop(0, steps, step, (first, optimiser.init(first), cursor))[0]


@pytest.mark.parametrize(
    ("method", "momentum"),
    [
        (tb.SGLD(1e-3, noise=0.0, run=RUN), None),
        (tb.SGHMC(1e-3, friction=0.1, noise=0.0, run=RUN), np.float32(0.9)),
    ],
    ids=["sgld", "sghmc"],
)
def test_without_noise_it_is_sgd_to_the_bit(method, momentum):
    key = jax.random.key(3)
    with pytest.warns(tb.ConvergenceWarning):
        posterior = method.fit(MODEL, DATA, key=key)
    last = ravel(jax.tree.map(lambda leaf: leaf[0, -1], posterior.params))
    model, data = MODEL.bind(DATA)
    target = strong(tb.Target(model, float(data.num)))
    expected = by_optax(target, data, key, np.float32(1e-3), momentum, 30)
    np.testing.assert_array_equal(np.asarray(last), np.asarray(expected))
