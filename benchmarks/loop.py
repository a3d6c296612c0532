"""Overhead of the training loop: against a bare scan, a vmapped ensemble, a cold start. Ratios within one run.

python benchmarks/loop.py -> benchmarks/results/loop.json
"""

import subprocess
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from record import record

import tunbridge as tb
from tunbridge.runtime import loop, members


def timed(call, repeats=3):
    """Seconds of each repeat, after one call to compile."""
    call()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds


def small_problem():
    """13-50-1 tanh, 500 points, float32."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 13))
    data = tb.Data(x, np.sin(x[:, 0]) + 0.1 * rng.normal(size=500))
    return tb.Model(tb.networks.MLP((50,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1)), data


@partial(jax.jit, static_argnums=(2, 3))
def bare_scan(weights, data, steps, step_size):
    """The same training written by hand: Adam with a cosine decay on the mean loss plus weight decay."""
    adam = optax.adam(optax.cosine_decay_schedule(step_size, steps), b2=0.99)

    def loss(w):
        first, last = w["layers"]
        f = jnp.tanh(data.x @ first["weight"] + first["bias"]) @ last["weight"] + last["bias"]
        decay = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(w)) / (2 * data.num)
        return jnp.mean((data.y - f) ** 2) / (2 * 0.1**2) + decay

    def step(carry, _):
        w, memory = carry
        value, gradient = jax.value_and_grad(loss)(w)
        updates, memory = adam.update(gradient, memory, w)
        return (optax.apply_updates(w, updates), memory), value

    return jax.lax.scan(step, (weights, adam.init(weights)), None, length=steps)


def against_bare_scan(steps=20_000, repeats=3):
    model, data = small_problem()
    weights = model.bind(data)[0].network.init(jax.random.key(0), data.x)
    method = tb.MAP(train=tb.Train(steps))
    ratios = []
    for _ in range(repeats):
        bare = timed(lambda: jax.block_until_ready(bare_scan(weights, data, steps, 0.01)), 1)[0]
        fit = timed(lambda: method.fit(model, data, key=jax.random.key(0), progress=False), 1)[0]
        ratios.append((bare / fit, steps / bare, steps / fit))
    ratio, bare_rate, rate = np.median(ratios, axis=0)
    return {"bare_steps_per_second": bare_rate, "fit_steps_per_second": rate, "ratio": ratio}


def threads_against_vmap(size=8, steps=4000, repeats=3):
    model, data = small_problem()
    method = tb.Ensemble(tb.MAP(train=tb.Train(steps)), size)
    rates = {}
    for name in ("threads", "vmap"):
        loop.spread = members.spread if name == "threads" else (lambda num: [(list(range(num)), None)])
        seconds = timed(lambda: method.fit(model, data, key=jax.random.key(0), progress=False), repeats)
        rates[f"{name}_steps_per_second"] = size * steps / np.median(seconds)
    loop.spread = members.spread
    return {**rates, "ratio": rates["threads_steps_per_second"] / rates["vmap_steps_per_second"]}


def second_start():
    """Milliseconds of a one-step `fit` with other hyperparameters, after a first fit has compiled."""
    model, data = small_problem()
    tb.MAP(train=tb.Train(1)).fit(model, data, key=jax.random.key(0))
    seconds = []
    for i in range(1, 6):
        changed = tb.Model(model.network, tb.priors.Normal(1.0 + i), tb.likelihoods.Gaussian(0.1 * i))
        began = time.perf_counter()
        tb.MAP(step_size=0.001 * i, train=tb.Train(1)).fit(changed, data, key=jax.random.key(i))
        seconds.append(time.perf_counter() - began)
    return 1000 * float(np.median(seconds))


def import_seconds(repeats=5):
    """Seconds of `import tunbridge` after `import jax`, and of the additional imports of the first fit."""
    code = "import time, jax; t = time.perf_counter(); import tunbridge; print(time.perf_counter() - t)"
    found = [float(subprocess.run([sys.executable, "-c", code], capture_output=True).stdout) for _ in range(repeats)]
    return float(np.median(found))


if __name__ == "__main__":
    record(
        "loop",
        {
            "map_against_bare_scan": against_bare_scan(),
            "ensemble_threads_against_vmap": threads_against_vmap(),
            "second_fit_milliseconds": second_start(),
            "import_seconds_after_jax": import_seconds(),
        },
    )
