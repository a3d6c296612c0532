"""Markov chains: gradients per second against blackjax and numpyro, and time until 100 predictions have converged.

python benchmarks/mcmc.py rates       13-50-1 tanh, 500 rows, about five minutes
python benchmarks/mcmc.py memory      memory by number of steps that are not kept; compilation of a second fit
python benchmarks/mcmc.py converged   Boston housing (TUNBRIDGE_DATA), split 0, three keys, about half an hour
each -> benchmarks/results/mcmc_*.json
"""

import os
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

if "rates" in sys.argv or "numpyro" in sys.argv:  # numpyro's parallel chains need one host device each
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from record import record

import tunbridge as tb
from tunbridge import diagnostics
from tunbridge.runtime.loop import Options, run

STEPS = 20
"""Leapfrog steps per trajectory in measurements of rates."""


PLAN = [
    ("mclmc", 0, "fan_in"),
    ("numpyro", 0, "fan_in"),
    ("mclmc", 1, "fan_in"),
    ("mclmc", 2, "fan_in"),
    ("mclmc", 0, "normal"),
    ("numpyro", 1, "fan_in"),
    ("numpyro", 2, "fan_in"),
    *((name, 0, "fan_in") for name in ("hmc", "nuts", "adjustedmclmc", "blackjax")),
]
"""Method, key, prior."""


def model(prior):
    """13-50-1 tanh with unknown noise."""
    return tb.Model(tb.networks.MLP((50,)), prior, tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)))


FAN_IN = tb.priors.Normal(tb.priors.fan_in(1.0))


def table(num=500):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num, 13))
    return x, np.sin(x[:, 0]) + 0.3 * rng.normal(size=num)


def best_of(times, work):
    """The shortest time in seconds over some repeats."""
    found = []
    for i in range(times):
        began = time.perf_counter()
        work(i)
        found.append(time.perf_counter() - began)
    return min(found)


def rates():
    """Gradients per second after compilation: HMC of 20 leapfrog steps with 4 and 64 chains, ragged NUTS with 4."""
    import blackjax
    import peers_mcmc as peers

    x, y = table()
    made, data = model(FAN_IN).bind(tb.Data(x, y))
    target = tb.Target(made, float(data.num))
    log_density, _ = peers.flat_log_density(target, data)
    scales = (13**-0.5, 1.0, 50**-0.5, 1.0)
    rows = [ragged(made, data, log_density)]
    for chains, draws in ((64, 30), (4, 300)):
        keys = jax.random.split(jax.random.key(1), chains)
        starts = jax.vmap(lambda key: made.sample_params(key, data.x))(keys)._replace(noise=(jnp.zeros(chains),))
        flat = jax.vmap(lambda p: jax.flatten_util.ravel_pytree(p)[0])(starts)
        gradients = chains * draws * STEPS
        method = tb.HMC(step_size=1e-3, steps=STEPS, run=tb.Run(chains=chains, warmup=0, draws=draws))
        ours = partial(chains_only, method, made, tb.Data(x, y))
        ours(0)
        rate = {"tunbridge": gradients / best_of(3, ours)}

        kernel = blackjax.hmc(log_density, 1e-3, jnp.ones(flat.shape[1]), STEPS)

        @jax.jit
        def loop(keys, states, kernel=kernel, draws=draws):
            def turn(states, i):
                states, _ = jax.vmap(kernel.step)(jax.vmap(jax.random.fold_in, (0, None))(keys, i), states)
                return states, states.position

            return jax.lax.scan(turn, states, jnp.arange(draws))

        states = jax.vmap(kernel.init)(flat)
        theirs = partial(ready, loop, keys, states)
        theirs(0)
        rate["blackjax"] = gradients / best_of(3, theirs)

        for name in ("parallel",) if chains <= 4 else ():  # its vectorized method was slower; not run at 64 chains
            hmc = peers.HMC(
                peers.numpyro_model(scales),
                step_size=1e-3,
                num_steps=STEPS,
                adapt_step_size=False,
                adapt_mass_matrix=False,
            )
            mcmc = peers.MCMC(
                hmc, num_warmup=0, num_samples=draws, num_chains=chains, chain_method=name, progress_bar=False,
                jit_model_args=True,
            )  # fmt: skip
            init = peers.as_numpyro(starts)

            def numpyro_run(i, mcmc=mcmc, init=init):
                mcmc.run(jax.random.key(i), jnp.asarray(x), jnp.asarray(y), init_params=init)
                jax.block_until_ready(mcmc.get_samples(group_by_chain=True))

            numpyro_run(0)
            rate[f"numpyro {name}"] = gradients / best_of(2, numpyro_run)
        rows.append({"method": "HMC", "chains": chains, **rate})
        record("mcmc_rates", {"rates": rows}, "mcmc.py rates")


def ready(loop, keys, states, _):
    return jax.block_until_ready(loop(keys, states))


def chains_only(method, made, data, seed):
    """The chains of a fit without the diagnostics that follow, as in the loops of the peers."""
    bound, rows = made.bind(data)
    keys = jax.random.split(jax.random.key(seed), method.run.chains)
    return run(method, tb.Target(bound, float(rows.num)), rows, method.run, keys, Options(None, False))


def ragged(made, data, log_density):
    """NUTS at a fixed step size: trees of different lengths."""
    import blackjax

    chains, draws, step = 4, 60, 0.02
    keys = jax.random.split(jax.random.key(1), chains)
    variance = jnp.ones(752)
    method = tb.NUTS(step_size=step, run=tb.Run(chains=chains, warmup=0, draws=draws))
    chains_only(method, made, data, 0)
    began = time.perf_counter()
    traces = chains_only(method, made, data, 1)
    ours = sum(float(np.sum(t.info.gradients)) for t in traces) / (time.perf_counter() - began)

    kernel = blackjax.nuts(log_density, step, variance)
    starts = jax.vmap(lambda key: jax.flatten_util.ravel_pytree(made.sample_params(key, data.x))[0])(keys)

    @jax.jit
    def loop(keys, states):
        def turn(states, i):
            states, info = jax.vmap(kernel.step)(jax.vmap(jax.random.fold_in, (0, None))(keys, i), states)
            return states, info.num_integration_steps

        return jax.lax.scan(turn, states, jnp.arange(draws))

    states = jax.vmap(kernel.init)(starts)
    jax.block_until_ready(loop(keys, states))
    began = time.perf_counter()
    _, steps = jax.block_until_ready(loop(keys, states))
    theirs = float(jnp.sum(steps)) / (time.perf_counter() - began)
    return {"method": "NUTS, ragged", "chains": chains, "tunbridge": ours, "blackjax": theirs}


def memory():
    """Peak memory by number of steps that are not kept, and programs compiled by a second fit on other data."""
    x, y = table()
    data, found = tb.Data(x, y), {}
    for thin in (1, 10, 100):
        method = tb.MCLMC(step_size=0.5, length=20.0, run=tb.Run(chains=2, warmup=100, draws=200, thin=thin))
        method.fit(model(FAN_IN), data, key=jax.random.key(0), progress=False)
        found[str(thin)] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, _, **__: compiled.append(name) if name.endswith("backend_compile_duration") else None
    )
    method.fit(model(FAN_IN), tb.Data(x + 1.0, y * 2.0), key=jax.random.key(1), progress=False)
    figures = {"peak_mb_by_thin": found, "programs_compiled_by_a_second_fit": len(compiled)}
    record("mcmc_memory", figures, "mcmc.py memory")


def boston(split=0):
    """Standardised training rows, and 100 inputs: the 51 of the test split and 49 of the training rows."""
    folder = Path(os.environ["TUNBRIDGE_DATA"])
    file = np.load(folder / "uci" / "boston.npz")
    x, y, num = file["x"], file["y"], int(file["n"])
    test = np.unpackbits(file["test"], axis=1)[:, :num].astype(bool)[split]
    mean, sd = x[~test].mean(0), x[~test].std(0)
    x = (x - mean) / np.where(sd > 0, sd, 1.0)
    target = (y[~test] - y[~test].mean()) / y[~test].std()
    rows, other = x[~test], x[test]
    return rows, target, np.concatenate([other, rows[: 100 - len(other)]])


def enough(functions):
    """The least number of draws per chain with R-hat < 1.01 and bulk ESS > 400 at 95 % of the inputs."""
    total = functions.shape[1]
    for num in np.unique(np.linspace(0.05, 1.0, 20) * total).astype(int):
        some = functions[:, :num]
        if (
            num >= 20
            and np.quantile(diagnostics.rhat(some), 0.95) < 1.01
            and np.quantile(diagnostics.ess_bulk(some), 0.05) > 400
        ):
            return int(num)
    return None


def one(name, seed, prior):
    """Seconds from the first call to enough draws in a fresh process, compilation and warm-up included."""
    x, y, inputs = boston()
    made, data = model(FAN_IN if prior == "fan_in" else tb.priors.Normal(1.0)).bind(tb.Data(x, y))
    keys = jax.random.split(jax.random.key(seed), 4)
    starts = jax.vmap(lambda key: made.sample_params(key, data.x))(keys)
    posterior = tb.Chains(made, keys[0], jax.tree.map(lambda leaf: leaf[:, None], starts), {}, data.x[:1])
    began, marks = time.perf_counter(), {}
    if name in ("mclmc", "hmc", "nuts", "adjustedmclmc"):
        run = {"mclmc": tb.MCLMC().run, "hmc": tb.Run(warmup=300, draws=300)}.get(name, tb.Run(warmup=300, draws=250))
        method = tb.METHODS[name](run=run)

        def mark(event):
            if event.step >= run.warmup:
                marks.setdefault("warm", time.perf_counter() - began)

        fitted = method.fit(made, data, key=jax.random.key(seed), init=posterior, progress=False, callbacks=[mark])
        seconds = time.perf_counter() - began
        functions = fitted.functions(inputs)[..., 0]
    elif name == "numpyro":
        import peers_mcmc as peers

        scales = (13**-0.5, 1.0, 50**-0.5, 1.0) if prior == "fan_in" else (1.0,) * 4
        mcmc = peers.MCMC(
            peers.NUTS(peers.numpyro_model(scales)), num_warmup=500, num_samples=250, num_chains=4,
            chain_method="parallel", progress_bar=False,
        )  # fmt: skip
        init = peers.as_numpyro(starts)
        mcmc.warmup(jax.random.key(seed), jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), init_params=init)
        jax.block_until_ready(mcmc.last_state)
        marks["warm"] = time.perf_counter() - began
        mcmc.run(mcmc.post_warmup_state.rng_key, jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
        samples = jax.block_until_ready(mcmc.get_samples(group_by_chain=True))
        seconds = time.perf_counter() - began
        functions = peers.numpyro_functions(samples, jnp.asarray(inputs, jnp.float32))
    else:
        import peers_mcmc as peers

        log_density, unravel = peers.flat_log_density(tb.Target(made, float(data.num)), data)
        flat = jax.vmap(lambda p: jax.flatten_util.ravel_pytree(p)[0])(starts)
        positions = jax.block_until_ready(peers.blackjax_chains(log_density, flat, 500, 250, keys))
        seconds = time.perf_counter() - began
        marks["warm"] = 0.7 * seconds  # warm-up and draws are one program: warm-up gets its share of the gradients
        params = jax.vmap(jax.vmap(unravel))(positions)
        functions = np.asarray(
            jax.vmap(jax.vmap(lambda p: made.outputs(p, jnp.asarray(inputs, jnp.float32))[:, 0]))(params)
        )
    num = enough(functions)
    total = functions.shape[1]
    needed = seconds if num is None else marks["warm"] + (seconds - marks["warm"]) * num / total
    rhat, ess = diagnostics.rhat(functions), diagnostics.ess_bulk(functions)
    print(
        f"{name} {seed} {prior} seconds {needed:.1f} draws {num} of {total} whole {seconds:.1f} "
        f"warm {marks['warm']:.1f} "
        f"rhat95 {np.quantile(rhat, 0.95):.4f} ess05 {np.quantile(ess, 0.05):.0f}",
        flush=True,
    )
    np.savez(os.environ["OUT"], seconds=needed, reached=num is not None, whole=seconds, warm=marks["warm"])


def converged():
    """Every method in processes of its own, one after another."""
    rows = []
    for name, seed, prior in PLAN:
        out = Path(os.environ.get("TMPDIR", "/tmp")) / "mcmc_one.npz"
        out.unlink(missing_ok=True)
        try:
            subprocess.run(
                [sys.executable, __file__, "one", name, str(seed), prior],
                env={**os.environ, "OUT": str(out)}, check=True, timeout=900,
            )  # fmt: skip
            row = {key: value.item() for key, value in np.load(out).items()}
        except subprocess.TimeoutExpired:
            row = {"seconds": 900.0, "reached": False}
        rows.append({"method": name, "seed": seed, "prior": prior, **row})
        record("mcmc_converged", {"rows": rows}, "mcmc.py converged")


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "one":
        one(rest[0], int(rest[1]), rest[2])
    else:
        {"rates": rates, "memory": memory, "converged": converged}[command]()
