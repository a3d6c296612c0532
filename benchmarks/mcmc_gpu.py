"""A thousand chains in one program on an accelerator: gradients per second against a bare scan, and bitwise resume.

python benchmarks/mcmc_gpu.py [chains] -> benchmarks/results/mcmc_gpu.json
"""

import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
from mcmc import FAN_IN, STEPS, chains_only, model, table
from peers_mcmc import flat_log_density
from record import record

import tunbridge as tb
from tunbridge import diagnostics


def limit(log_density, position, draws):
    """Gradients per second of leapfrog steps alone, vmapped over chains in one scan."""
    gradient = jax.vmap(jax.grad(log_density))

    @jax.jit
    def loop(position, momentum):
        def leap(_, carry):
            position, momentum, force = carry
            momentum = momentum + 5e-4 * force
            position = position + 1e-3 * momentum
            force = gradient(position)
            return position, momentum + 5e-4 * force, force

        return jax.lax.fori_loop(0, draws * STEPS, leap, (position, momentum, gradient(position)))

    momentum = jax.random.normal(jax.random.key(0), position.shape)
    jax.block_until_ready(loop(position, momentum))
    began = time.perf_counter()
    jax.block_until_ready(loop(position, momentum))
    return position.shape[0] * draws * STEPS / (time.perf_counter() - began)


def main(chains):
    x, y = table()
    made, data = model(FAN_IN).bind(tb.Data(x, y))
    log_density, _ = flat_log_density(tb.Target(made, float(data.num)), data)
    keys = jax.random.split(jax.random.key(1), chains)
    start = jax.vmap(lambda key: jax.flatten_util.ravel_pytree(made.sample_params(key, data.x))[0])(keys)
    start = start.at[:, -1].set(0.0)
    draws = 100
    bare = limit(log_density, start, draws)
    run = tb.Run(chains=chains, warmup=0, draws=draws)
    method = tb.HMC(step_size=1e-3, steps=STEPS, run=run)
    chains_only(method, made, data, 0)
    began = time.perf_counter()
    chains_only(method, made, data, 1)
    ours = chains * draws * STEPS / (time.perf_counter() - began)

    began = time.perf_counter()
    sampler = tb.MCLMC(run=tb.Run(chains=chains, warmup=2000, draws=50, thin=40))
    posterior = sampler.fit(made, data, key=jax.random.key(0), progress=False)
    seconds = time.perf_counter() - began
    functions = posterior.functions()
    few = tb.NUTS(run=tb.Run(chains=8, warmup=40, draws=20))
    whole = few.fit(made, data, key=jax.random.key(3), progress=False)
    with tempfile.TemporaryDirectory() as folder:
        few.fit(
            made, data, key=jax.random.key(3), progress=False, checkpoint=folder, callbacks=[lambda e: e.step >= 45]
        )
        resumed = few.fit(made, data, key=jax.random.key(3), progress=False, checkpoint=folder)
    pairs = zip(jax.tree.leaves(whole.params), jax.tree.leaves(resumed.params), strict=True)
    figures = {
        "device": jax.devices()[0].device_kind,
        "chains": chains,
        "bare_gradients_per_second": bare,
        "hmc_gradients_per_second": ours,
        "ratio": ours / bare,
        "mclmc_seconds": seconds,
        "mclmc_gradients": 2 * chains * 4000,
        "mclmc_rhat_95": float(np.quantile(diagnostics.rhat(functions[:, :, :, 0]), 0.95)),
        "mclmc_ess_least": float(np.min(diagnostics.ess_bulk(functions[:, :, :, 0]))),
        "resumed_to_the_bit": all(bool(jnp.array_equal(a, b)) for a, b in pairs),
    }
    record("mcmc_gpu", figures)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
